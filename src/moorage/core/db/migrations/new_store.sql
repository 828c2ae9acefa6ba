CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE account (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	email TEXT NOT NULL,
	username TEXT NOT NULL,
	first_name TEXT NOT NULL,
	last_name TEXT NOT NULL,
	avatar_url TEXT,
	mfa_enabled BOOLEAN NOT NULL,
	status TEXT NOT NULL,
	suspended_at BIGINT,
	terms_accepted_at BIGINT,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL, operator_at BIGINT,
	CONSTRAINT uq_account_email UNIQUE (email)
);
CREATE TABLE activity (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	seq INTEGER NOT NULL,
	at BIGINT NOT NULL,
	user_id INTEGER,
	actor TEXT NOT NULL,
	action TEXT NOT NULL,
	target_kind TEXT NOT NULL,
	target TEXT NOT NULL,
	details TEXT NOT NULL,
	seal TEXT NOT NULL,
	CONSTRAINT uq_activity_org_id_seq UNIQUE (org_id, seq)
);
CREATE INDEX ix_activity_target ON activity (org_id, target_kind, target);
CREATE TABLE artifact (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	digest TEXT NOT NULL,
	size BIGINT NOT NULL,
	copy TEXT NOT NULL,
	status TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	unreferenced_since BIGINT,
	CONSTRAINT uq_artifact_digest UNIQUE (digest)
);
CREATE INDEX ix_artifact_deleting ON artifact (id) WHERE status = 'deleting';
CREATE INDEX ix_artifact_unreferenced ON artifact (id) WHERE unreferenced_since IS NOT NULL;
CREATE TABLE audit_head (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	seq INTEGER NOT NULL,
	seal TEXT NOT NULL,
	CONSTRAINT uq_audit_head_org_id UNIQUE (org_id)
);
CREATE TABLE idempotency_key (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	actor TEXT NOT NULL,
	route TEXT NOT NULL,
	"key" TEXT NOT NULL,
	fingerprint TEXT NOT NULL,
	status INTEGER,
	answer TEXT,
	created_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	CONSTRAINT uq_idempotency_key_org_id_actor_route_key UNIQUE (org_id, actor, route, "key")
);
CREATE TABLE job (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	kind TEXT NOT NULL,
	lane TEXT NOT NULL,
	"key" TEXT,
	dedupe_key TEXT,
	payload TEXT NOT NULL,
	status TEXT NOT NULL,
	attempts INTEGER NOT NULL,
	max_attempts INTEGER NOT NULL,
	run_at BIGINT NOT NULL,
	lease_until BIGINT,
	lease_token TEXT,
	last_error TEXT,
	trace_id TEXT,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL
, machine_id INTEGER);
CREATE INDEX ix_job_due ON job (lane, run_at, id) WHERE status = 'queued';
CREATE INDEX ix_job_finished ON job (status, updated_at);
CREATE INDEX ix_job_lease ON job (lease_until) WHERE status = 'running';
CREATE INDEX ix_job_queued_key ON job ("key", id) WHERE status = 'queued';
CREATE UNIQUE INDEX uq_job_running_key ON job ("key") WHERE status = 'running';
CREATE UNIQUE INDEX uq_job_waiting ON job (dedupe_key) WHERE status = 'queued';
CREATE TABLE organization (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	name TEXT NOT NULL,
	slug TEXT NOT NULL,
	"plan" TEXT NOT NULL,
	card_verified BOOLEAN NOT NULL,
	stripe_customer TEXT,
	card_event_at BIGINT NOT NULL,
	plan_event_at BIGINT NOT NULL,
	deleted_at BIGINT,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL, create_on_push BOOLEAN DEFAULT 1 NOT NULL, suspended_at BIGINT,
	CONSTRAINT uq_organization_slug UNIQUE (slug),
	CONSTRAINT uq_organization_stripe_customer UNIQUE (stripe_customer)
);
CREATE TABLE platform_fact (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	name TEXT NOT NULL,
	value TEXT NOT NULL,
	updated_at BIGINT NOT NULL,
	CONSTRAINT uq_platform_fact_name UNIQUE (name)
);
CREATE TABLE timetable (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	kind TEXT NOT NULL,
	org_id INTEGER NOT NULL,
	ref TEXT NOT NULL,
	expression TEXT NOT NULL,
	timezone TEXT NOT NULL,
	enabled BOOLEAN NOT NULL,
	next_run_at BIGINT NOT NULL,
	last_tick_at BIGINT,
	CONSTRAINT uq_timetable_kind_org_id_ref UNIQUE (kind, org_id, ref)
);
CREATE INDEX ix_timetable_due ON timetable (enabled, next_run_at);
CREATE TABLE vault_secret (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	resource TEXT NOT NULL,
	name TEXT NOT NULL,
	ciphertext TEXT NOT NULL,
	updated_at BIGINT NOT NULL, origin TEXT,
	CONSTRAINT uq_vault_secret_org_id_resource_name UNIQUE (org_id, resource, name)
);
CREATE TABLE webhook_event (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	provider TEXT NOT NULL,
	event_id TEXT NOT NULL,
	kind TEXT NOT NULL,
	payload TEXT NOT NULL,
	status TEXT NOT NULL,
	received_at BIGINT NOT NULL,
	handled_at BIGINT,
	CONSTRAINT uq_webhook_event_provider_event_id UNIQUE (provider, event_id)
);
CREATE INDEX ix_webhook_event_age ON webhook_event (received_at);
CREATE TABLE account_login (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	user_id INTEGER NOT NULL,
	issuer TEXT NOT NULL,
	subject TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	CONSTRAINT fk_account_login_user_id FOREIGN KEY(user_id) REFERENCES account (id) ON DELETE CASCADE,
	CONSTRAINT uq_account_login_issuer_subject UNIQUE (issuer, subject)
);
CREATE INDEX ix_account_login_user_id ON account_login (user_id);
CREATE TABLE api_token (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	user_id INTEGER NOT NULL,
	name TEXT NOT NULL,
	role TEXT NOT NULL,
	hash TEXT NOT NULL,
	preview TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	expires_at BIGINT,
	last_used_at BIGINT,
	revoked_at BIGINT,
	CONSTRAINT fk_api_token_org_id FOREIGN KEY(org_id) REFERENCES organization (id) ON DELETE CASCADE,
	CONSTRAINT fk_api_token_user_id FOREIGN KEY(user_id) REFERENCES account (id) ON DELETE CASCADE,
	CONSTRAINT uq_api_token_hash UNIQUE (hash)
);
CREATE INDEX ix_api_token_org_id ON api_token (org_id);
CREATE INDEX ix_api_token_user_id ON api_token (user_id);
CREATE TABLE artifact_ref (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	digest TEXT NOT NULL,
	owner TEXT NOT NULL,
	CONSTRAINT fk_artifact_ref_digest FOREIGN KEY(digest) REFERENCES artifact (digest),
	CONSTRAINT uq_artifact_ref_org_id_owner_digest UNIQUE (org_id, owner, digest)
);
CREATE INDEX ix_artifact_ref_digest_org_id ON artifact_ref (digest, org_id);
CREATE TABLE invitation (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	email TEXT NOT NULL,
	role TEXT NOT NULL,
	status TEXT NOT NULL,
	invited_by INTEGER,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	CONSTRAINT fk_invitation_org_id FOREIGN KEY(org_id) REFERENCES organization (id) ON DELETE CASCADE
);
CREATE INDEX ix_invitation_email ON invitation (email);
CREATE INDEX ix_invitation_org_id ON invitation (org_id);
CREATE TABLE membership (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	user_id INTEGER NOT NULL,
	role TEXT NOT NULL,
	joined_at BIGINT NOT NULL,
	CONSTRAINT fk_membership_org_id FOREIGN KEY(org_id) REFERENCES organization (id) ON DELETE CASCADE,
	CONSTRAINT fk_membership_user_id FOREIGN KEY(user_id) REFERENCES account (id) ON DELETE CASCADE,
	CONSTRAINT uq_membership_org_id_user_id UNIQUE (org_id, user_id)
);
CREATE INDEX ix_membership_user_id ON membership (user_id);
CREATE TABLE notification (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	user_id INTEGER NOT NULL,
	org_id INTEGER,
	kind TEXT NOT NULL,
	title TEXT NOT NULL,
	body TEXT NOT NULL,
	dedupe_key TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	read_at BIGINT,
	CONSTRAINT fk_notification_user_id FOREIGN KEY(user_id) REFERENCES account (id) ON DELETE CASCADE,
	CONSTRAINT uq_notification_dedupe_key UNIQUE (dedupe_key)
);
CREATE INDEX ix_notification_feed ON notification (user_id, id);
CREATE TABLE stripe_holding (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	kind TEXT NOT NULL,
	stripe_id TEXT NOT NULL,
	customer TEXT,
	org_id INTEGER,
	alive BOOLEAN NOT NULL,
	event_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	CONSTRAINT fk_stripe_holding_org_id FOREIGN KEY(org_id) REFERENCES organization (id) ON DELETE CASCADE,
	CONSTRAINT uq_stripe_holding_kind_stripe_id UNIQUE (kind, stripe_id)
);
CREATE INDEX ix_stripe_holding_customer ON stripe_holding (customer);
CREATE INDEX ix_stripe_holding_org_id ON stripe_holding (org_id);
CREATE TABLE function (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	name TEXT NOT NULL,
	runtime TEXT NOT NULL,
	timeout_ms INTEGER NOT NULL,
	memory_mb INTEGER NOT NULL,
	description TEXT,
	network TEXT NOT NULL,
	raw_http BOOLEAN NOT NULL,
	own_options BOOLEAN NOT NULL,
	current_version INTEGER NOT NULL,
	last_version INTEGER NOT NULL,
	revision BIGINT NOT NULL,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	CONSTRAINT uq_function_org_id_name UNIQUE (org_id, name)
);
CREATE TABLE function_minute (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	function_id INTEGER NOT NULL,
	minute BIGINT NOT NULL,
	invocations BIGINT NOT NULL,
	errors BIGINT NOT NULL,
	cold_starts BIGINT NOT NULL,
	duration_us BIGINT NOT NULL,
	mb_ms BIGINT NOT NULL,
	CONSTRAINT uq_function_minute_function_id_minute UNIQUE (function_id, minute)
);
CREATE INDEX ix_function_minute_org_id_minute ON function_minute (org_id, minute);
CREATE TABLE invocation (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	function_id INTEGER NOT NULL,
	version INTEGER NOT NULL,
	activation_id TEXT NOT NULL,
	door TEXT NOT NULL,
	schedule_id INTEGER,
	started_at BIGINT NOT NULL,
	duration_us BIGINT NOT NULL,
	wait_us BIGINT NOT NULL,
	cold BOOLEAN NOT NULL,
	ok BOOLEAN NOT NULL,
	error TEXT,
	logs BLOB
, log_ref TEXT);
CREATE INDEX ix_invocation_function_id_id ON invocation (function_id, id);
CREATE TABLE schedule_run (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	schedule_id INTEGER NOT NULL,
	activation_id TEXT NOT NULL,
	due_at BIGINT NOT NULL,
	started_at BIGINT,
	CONSTRAINT uq_schedule_run_activation_id UNIQUE (activation_id)
);
CREATE TABLE spool_file (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	name TEXT NOT NULL,
	position BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	CONSTRAINT uq_spool_file_name UNIQUE (name)
);
CREATE TABLE function_version (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	function_id INTEGER NOT NULL,
	version INTEGER NOT NULL,
	digest TEXT NOT NULL,
	main TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	CONSTRAINT fk_function_version_function_id FOREIGN KEY(function_id) REFERENCES function (id),
	CONSTRAINT uq_function_version_function_id_version UNIQUE (function_id, version)
);
CREATE TABLE schedule (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	name TEXT NOT NULL,
	function_id INTEGER NOT NULL,
	cron TEXT NOT NULL,
	timezone TEXT NOT NULL,
	enabled BOOLEAN NOT NULL,
	params TEXT NOT NULL,
	last_run_at BIGINT,
	last_status TEXT,
	last_error TEXT,
	total_runs BIGINT NOT NULL,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	CONSTRAINT fk_schedule_function_id FOREIGN KEY(function_id) REFERENCES function (id),
	CONSTRAINT uq_schedule_org_id_name UNIQUE (org_id, name)
);
CREATE INDEX ix_schedule_function_id ON schedule (function_id);
CREATE TABLE analytics_hour (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	project_id INTEGER NOT NULL,
	hour BIGINT NOT NULL,
	requests BIGINT NOT NULL,
	visitors BIGINT NOT NULL,
	newcomers BIGINT NOT NULL,
	bytes BIGINT NOT NULL,
	s2xx BIGINT NOT NULL,
	s3xx BIGINT NOT NULL,
	s4xx BIGINT NOT NULL,
	s5xx BIGINT NOT NULL,
	CONSTRAINT uq_analytics_hour_project_id_hour UNIQUE (project_id, hour)
);
CREATE INDEX ix_analytics_hour_hour ON analytics_hour (hour);
CREATE TABLE analytics_position (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	folder TEXT NOT NULL,
	head_size INTEGER NOT NULL,
	head TEXT NOT NULL,
	position BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	CONSTRAINT uq_analytics_position_folder UNIQUE (folder)
);
CREATE TABLE analytics_top (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	project_id INTEGER NOT NULL,
	kind TEXT NOT NULL,
	day BIGINT NOT NULL,
	name TEXT NOT NULL,
	requests BIGINT NOT NULL,
	CONSTRAINT uq_analytics_top_project_id_kind_day_name UNIQUE (project_id, kind, day, name)
);
CREATE INDEX ix_analytics_top_day ON analytics_top (day);
CREATE TABLE analytics_visitor (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	project_id INTEGER NOT NULL,
	day BIGINT NOT NULL,
	visitor TEXT NOT NULL,
	hours INTEGER NOT NULL,
	CONSTRAINT uq_analytics_visitor_project_id_day_visitor UNIQUE (project_id, day, visitor)
);
CREATE INDEX ix_analytics_visitor_day ON analytics_visitor (day);
CREATE TABLE domain_holder (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	domain TEXT NOT NULL,
	org_id INTEGER NOT NULL,
	at BIGINT NOT NULL,
	CONSTRAINT uq_domain_holder_domain UNIQUE (domain)
);
CREATE TABLE github_installation (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	login TEXT NOT NULL,
	login_key TEXT NOT NULL,
	installation_id BIGINT NOT NULL,
	suspended BOOLEAN NOT NULL,
	org_id INTEGER,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	CONSTRAINT uq_github_installation_login_key UNIQUE (login_key)
);
CREATE TABLE project (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	name TEXT NOT NULL,
	slug TEXT,
	is_auto BOOLEAN NOT NULL,
	source TEXT NOT NULL,
	repository_name TEXT,
	repository_key TEXT,
	branch TEXT,
	region TEXT,
	language TEXT,
	runtime TEXT,
	base_dir TEXT NOT NULL,
	build_dir TEXT,
	build_cmd TEXT,
	start_cmd TEXT,
	entry_point TEXT,
	health_check_path TEXT,
	docker_file_path TEXT,
	docker_build_context_dir TEXT,
	tier TEXT,
	disk INTEGER,
	auto_scaling TEXT,
	is_public BOOLEAN NOT NULL,
	enable_analytics BOOLEAN NOT NULL,
	auto_deploy BOOLEAN NOT NULL,
	pr_preview BOOLEAN NOT NULL,
	env TEXT NOT NULL,
	enabled BOOLEAN NOT NULL,
	current_deployment_id INTEGER,
	latest_deployment_id INTEGER,
	total_deployments INTEGER NOT NULL,
	success_deployments INTEGER NOT NULL,
	failed_deployments INTEGER NOT NULL,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL, deploy_guard BOOLEAN DEFAULT '0' NOT NULL, replicas INTEGER DEFAULT '1' NOT NULL, asleep BOOLEAN DEFAULT '0' NOT NULL, paid_compute TEXT, public_image TEXT, docker_build_args TEXT, docker_build_target TEXT,
	CONSTRAINT uq_project_name UNIQUE (name)
);
CREATE INDEX ix_project_org_id_id ON project (org_id, id);
CREATE INDEX ix_project_repository_key ON project (repository_key);
CREATE TABLE repository (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	owner TEXT NOT NULL,
	name TEXT NOT NULL,
	owner_key TEXT NOT NULL,
	name_key TEXT NOT NULL,
	size_bytes BIGINT NOT NULL,
	default_branch TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL, machine_id INTEGER DEFAULT '0' NOT NULL,
	CONSTRAINT uq_repository_owner_key_name_key UNIQUE (owner_key, name_key)
);
CREATE INDEX ix_repository_org_id ON repository (org_id);
CREATE TABLE custom_domain (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	project_id INTEGER NOT NULL,
	domain TEXT NOT NULL,
	token TEXT NOT NULL,
	status TEXT NOT NULL,
	certificate_status TEXT NOT NULL,
	last_error TEXT,
	missed INTEGER NOT NULL,
	next_check_at BIGINT NOT NULL,
	certificate_at BIGINT,
	verified_at BIGINT,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	CONSTRAINT fk_custom_domain_project_id FOREIGN KEY(project_id) REFERENCES project (id),
	CONSTRAINT uq_custom_domain_org_id_domain UNIQUE (org_id, domain)
);
CREATE INDEX ix_custom_domain_domain ON custom_domain (domain);
CREATE INDEX ix_custom_domain_project_id ON custom_domain (project_id);
CREATE INDEX ix_custom_domain_status_next_check_at ON custom_domain (status, next_check_at);
CREATE UNIQUE INDEX uq_custom_domain_verified ON custom_domain (domain) WHERE status = 'verified';
CREATE TABLE deployment (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	uuid TEXT NOT NULL,
	org_id INTEGER NOT NULL,
	project_id INTEGER NOT NULL,
	preview_id INTEGER,
	status TEXT NOT NULL,
	kind TEXT NOT NULL,
	repository_name TEXT,
	branch TEXT,
	commit_sha TEXT,
	actor_user_id INTEGER,
	digest TEXT,
	file_count INTEGER,
	"plan" TEXT,
	reason TEXT,
	started_at BIGINT,
	ended_at BIGINT,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL, is_app BOOLEAN DEFAULT '0' NOT NULL, swap TEXT,
	CONSTRAINT fk_deployment_project_id FOREIGN KEY(project_id) REFERENCES project (id),
	CONSTRAINT uq_deployment_uuid UNIQUE (uuid)
);
CREATE INDEX ix_deployment_digest ON deployment (digest);
CREATE INDEX ix_deployment_project_id_id ON deployment (project_id, id);
CREATE INDEX ix_deployment_status ON deployment (status);
CREATE TABLE header_rule (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	project_id INTEGER NOT NULL,
	place INTEGER NOT NULL,
	source TEXT NOT NULL,
	name TEXT NOT NULL,
	value TEXT NOT NULL,
	CONSTRAINT fk_header_rule_project_id FOREIGN KEY(project_id) REFERENCES project (id),
	CONSTRAINT uq_header_rule_project_id_place UNIQUE (project_id, place)
);
CREATE TABLE preview (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	project_id INTEGER NOT NULL,
	number INTEGER NOT NULL,
	name TEXT NOT NULL,
	status TEXT NOT NULL,
	is_fork BOOLEAN NOT NULL,
	title TEXT NOT NULL,
	repository_name TEXT NOT NULL,
	branch TEXT NOT NULL,
	commit_sha TEXT NOT NULL,
	current_deployment_id INTEGER,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	CONSTRAINT fk_preview_project_id FOREIGN KEY(project_id) REFERENCES project (id),
	CONSTRAINT uq_preview_name UNIQUE (name),
	CONSTRAINT uq_preview_project_id_number UNIQUE (project_id, number)
);
CREATE TABLE project_name (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	project_id INTEGER NOT NULL,
	name TEXT NOT NULL,
	since BIGINT NOT NULL,
	until BIGINT,
	CONSTRAINT fk_project_name_project_id FOREIGN KEY(project_id) REFERENCES project (id)
);
CREATE INDEX ix_project_name_project_id ON project_name (project_id);
CREATE INDEX ix_project_name_until ON project_name (until);
CREATE TABLE redirect_rule (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	project_id INTEGER NOT NULL,
	place INTEGER NOT NULL,
	source TEXT NOT NULL,
	destination TEXT NOT NULL,
	status INTEGER NOT NULL,
	CONSTRAINT fk_redirect_rule_project_id FOREIGN KEY(project_id) REFERENCES project (id),
	CONSTRAINT uq_redirect_rule_project_id_place UNIQUE (project_id, place)
);
CREATE TABLE project_log (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	deployment_id INTEGER NOT NULL,
	seq BIGINT NOT NULL,
	at BIGINT NOT NULL,
	stream TEXT NOT NULL,
	message TEXT NOT NULL,
	CONSTRAINT fk_project_log_deployment_id FOREIGN KEY(deployment_id) REFERENCES deployment (id),
	CONSTRAINT uq_project_log_deployment_id_seq UNIQUE (deployment_id, seq)
);
CREATE TABLE app_sample (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	project_id INTEGER NOT NULL,
	at BIGINT NOT NULL,
	cpu_us BIGINT NOT NULL,
	cpu_share_us BIGINT NOT NULL,
	span_ms BIGINT NOT NULL,
	memory_bytes BIGINT NOT NULL,
	replicas INTEGER NOT NULL,
	requests BIGINT NOT NULL,
	s1xx BIGINT NOT NULL,
	s2xx BIGINT NOT NULL,
	s3xx BIGINT NOT NULL,
	s4xx BIGINT NOT NULL,
	s5xx BIGINT NOT NULL,
	latency TEXT NOT NULL,
	CONSTRAINT uq_app_sample_project_id_at UNIQUE (project_id, at)
);
CREATE INDEX ix_app_sample_at ON app_sample (at);
CREATE TABLE replica (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	project_id INTEGER NOT NULL,
	preview_id INTEGER,
	deployment_id INTEGER NOT NULL,
	token TEXT NOT NULL,
	status TEXT NOT NULL,
	port INTEGER,
	reason TEXT,
	drain_until BIGINT,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL
, machine_id INTEGER DEFAULT '0' NOT NULL, host TEXT);
CREATE INDEX ix_replica_deployment_id ON replica (deployment_id);
CREATE INDEX ix_replica_project_id ON replica (project_id);
CREATE TABLE "database" (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	project_id INTEGER,
	secret_name TEXT,
	name TEXT NOT NULL,
	type TEXT NOT NULL,
	version TEXT NOT NULL,
	software TEXT,
	engine_version TEXT,
	engine_exact BOOLEAN,
	engine_note TEXT,
	status TEXT NOT NULL,
	status_reason TEXT,
	visibility TEXT NOT NULL,
	instance_type TEXT NOT NULL,
	region TEXT NOT NULL,
	architecture TEXT NOT NULL,
	username TEXT NOT NULL,
	db_name TEXT NOT NULL,
	port INTEGER NOT NULL,
	backup BOOLEAN NOT NULL,
	backup_method TEXT NOT NULL,
	backup_cron TEXT NOT NULL,
	backup_days INTEGER NOT NULL,
	backups_to_keep INTEGER,
	is_full BOOLEAN NOT NULL,
	disk_bytes BIGINT NOT NULL,
	running_since BIGINT,
	verified_at BIGINT,
	deleted_at BIGINT,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL
, machine_id INTEGER DEFAULT '0' NOT NULL, host TEXT);
CREATE UNIQUE INDEX uq_database_org_id_name ON "database" (org_id, name) WHERE deleted_at IS NULL;
CREATE TABLE database_backup (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	database_id INTEGER NOT NULL,
	name TEXT NOT NULL,
	status TEXT NOT NULL,
	method TEXT NOT NULL,
	cause TEXT NOT NULL,
	software TEXT NOT NULL,
	digest TEXT,
	total_size BIGINT,
	entries INTEGER,
	first_wal TEXT,
	reason TEXT,
	started_at BIGINT NOT NULL,
	completed_at BIGINT,
	expires_at BIGINT,
	verified_at BIGINT,
	updated_at BIGINT NOT NULL,
	CONSTRAINT uq_database_backup_database_id_name UNIQUE (database_id, name)
);
CREATE TABLE database_sample (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	database_id INTEGER NOT NULL,
	step_s INTEGER NOT NULL,
	at BIGINT NOT NULL,
	looks INTEGER NOT NULL,
	answers INTEGER NOT NULL,
	connections BIGINT NOT NULL,
	max_connections INTEGER,
	queries BIGINT,
	queries_ms BIGINT NOT NULL,
	cache_hits BIGINT,
	cache_reads BIGINT, cpu_milli BIGINT, memory_bytes BIGINT, disk_bytes BIGINT, cpu_looks INTEGER, memory_looks INTEGER,
	CONSTRAINT uq_database_sample_database_id_step_s_at UNIQUE (database_id, step_s, at)
);
CREATE INDEX ix_database_sample_step_s_at ON database_sample (step_s, at);
CREATE TABLE database_server (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	database_id INTEGER NOT NULL,
	role TEXT NOT NULL,
	folder TEXT NOT NULL,
	token TEXT NOT NULL,
	port INTEGER NOT NULL,
	in_sync BOOLEAN NOT NULL,
	restarts INTEGER NOT NULL,
	reason TEXT,
	started_at BIGINT,
	cpu_milli INTEGER,
	memory_bytes BIGINT,
	seen_restarts INTEGER NOT NULL,
	seen_at BIGINT,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL
, machine_id INTEGER DEFAULT '0' NOT NULL);
CREATE INDEX ix_database_server_database_id ON database_server (database_id);
CREATE TABLE database_wal (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	database_id INTEGER NOT NULL,
	name TEXT NOT NULL,
	digest TEXT NOT NULL,
	size BIGINT NOT NULL,
	stored_at BIGINT NOT NULL,
	CONSTRAINT uq_database_wal_database_id_name UNIQUE (database_id, name)
);
CREATE TABLE cronjob (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	name TEXT NOT NULL,
	status TEXT NOT NULL,
	is_active BOOLEAN NOT NULL,
	image_source TEXT NOT NULL,
	cron_schedule TEXT NOT NULL,
	region TEXT NOT NULL,
	instance_type TEXT NOT NULL,
	repository_name TEXT,
	repository_key TEXT,
	branch TEXT,
	is_public BOOLEAN NOT NULL,
	language TEXT,
	base_dir TEXT,
	build_cmd TEXT,
	start_cmd TEXT,
	command TEXT NOT NULL,
	dockerfile_path TEXT,
	docker_build_context_dir TEXT,
	auto_deploy BOOLEAN NOT NULL,
	public_image TEXT,
	env TEXT NOT NULL,
	build_id INTEGER,
	total_runs INTEGER NOT NULL,
	successful_runs INTEGER NOT NULL,
	failed_runs INTEGER NOT NULL,
	skipped_runs INTEGER NOT NULL,
	last_run_at BIGINT,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL, docker_build_args TEXT, docker_build_target TEXT,
	CONSTRAINT uq_cronjob_org_id_name UNIQUE (org_id, name)
);
CREATE INDEX ix_cronjob_repository_key ON cronjob (repository_key);
CREATE TABLE cronjob_build (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	uuid TEXT NOT NULL,
	org_id INTEGER NOT NULL,
	cronjob_id INTEGER NOT NULL,
	status TEXT NOT NULL,
	branch TEXT,
	commit_sha TEXT,
	digest TEXT,
	"plan" TEXT,
	settings TEXT NOT NULL,
	reason TEXT,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	CONSTRAINT uq_cronjob_build_uuid UNIQUE (uuid)
);
CREATE INDEX ix_cronjob_build_cronjob_id ON cronjob_build (cronjob_id);
CREATE TABLE cronjob_build_line (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	build_id INTEGER NOT NULL,
	seq INTEGER NOT NULL,
	at BIGINT NOT NULL,
	stream TEXT NOT NULL,
	message TEXT NOT NULL,
	CONSTRAINT uq_cronjob_build_line_build_id_seq UNIQUE (build_id, seq)
);
CREATE TABLE cronjob_execution (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	uuid TEXT NOT NULL,
	org_id INTEGER NOT NULL,
	cronjob_id INTEGER NOT NULL,
	status TEXT NOT NULL,
	scheduled_for BIGINT,
	token TEXT NOT NULL,
	build_id INTEGER,
	image_digest TEXT,
	exit_code INTEGER,
	error_message TEXT,
	started_at BIGINT,
	completed_at BIGINT,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL, machine_id INTEGER DEFAULT '0' NOT NULL,
	CONSTRAINT uq_cronjob_execution_cronjob_id_scheduled_for UNIQUE (cronjob_id, scheduled_for),
	CONSTRAINT uq_cronjob_execution_uuid UNIQUE (uuid)
);
CREATE INDEX ix_cronjob_execution_status ON cronjob_execution (status);
CREATE TABLE alert (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	monitor_id INTEGER NOT NULL,
	metric TEXT NOT NULL,
	condition TEXT NOT NULL,
	threshold FLOAT NOT NULL,
	duration_min INTEGER NOT NULL,
	severity TEXT NOT NULL,
	by_email BOOLEAN NOT NULL,
	by_slack BOOLEAN NOT NULL,
	by_webhook BOOLEAN NOT NULL,
	slack_off TEXT,
	webhook_off TEXT,
	status TEXT NOT NULL,
	is_enabled BOOLEAN NOT NULL,
	acknowledged BOOLEAN NOT NULL,
	last_triggered_at BIGINT,
	pending_since BIGINT,
	good_samples INTEGER NOT NULL,
	good_since BIGINT,
	fired_at TEXT NOT NULL,
	is_flapping BOOLEAN NOT NULL,
	incident_id INTEGER,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL
);
CREATE INDEX ix_alert_monitor_id ON alert (monitor_id);
CREATE TABLE alert_incident (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	uuid TEXT NOT NULL,
	org_id INTEGER NOT NULL,
	monitor_id INTEGER NOT NULL,
	alert_id INTEGER NOT NULL,
	is_flapping BOOLEAN NOT NULL,
	observed TEXT NOT NULL,
	started_at BIGINT NOT NULL,
	resolved_at BIGINT,
	CONSTRAINT uq_alert_incident_uuid UNIQUE (uuid)
);
CREATE INDEX ix_alert_incident_monitor_id ON alert_incident (monitor_id, started_at);
CREATE TABLE alert_notice (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	uuid TEXT NOT NULL,
	org_id INTEGER NOT NULL,
	monitor_id INTEGER NOT NULL,
	alert_id INTEGER,
	incident_id INTEGER,
	about TEXT NOT NULL,
	kind TEXT NOT NULL,
	channel TEXT NOT NULL,
	target TEXT NOT NULL,
	payload TEXT NOT NULL,
	status TEXT NOT NULL,
	attempts INTEGER NOT NULL,
	last_error TEXT,
	delivered_at BIGINT,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	CONSTRAINT uq_alert_notice_about_kind_channel_target UNIQUE (about, kind, channel, target),
	CONSTRAINT uq_alert_notice_uuid UNIQUE (uuid)
);
CREATE INDEX ix_alert_notice_alert_id ON alert_notice (alert_id);
CREATE INDEX ix_alert_notice_created_at ON alert_notice (created_at);
CREATE TABLE certificate_notice (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	monitor_id INTEGER NOT NULL,
	fingerprint TEXT NOT NULL,
	threshold_days INTEGER NOT NULL,
	created_at BIGINT NOT NULL,
	CONSTRAINT uq_certificate_notice_monitor_id_fingerprint_threshold_days UNIQUE (monitor_id, fingerprint, threshold_days)
);
CREATE TABLE heartbeat (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	monitor_id INTEGER NOT NULL,
	slot BIGINT NOT NULL,
	at BIGINT NOT NULL,
	status TEXT NOT NULL,
	response_ms INTEGER,
	code INTEGER,
	message TEXT NOT NULL,
	CONSTRAINT uq_heartbeat_monitor_id_slot UNIQUE (monitor_id, slot)
);
CREATE INDEX ix_heartbeat_slot ON heartbeat (slot);
CREATE TABLE monitor (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	project_id INTEGER,
	name TEXT NOT NULL,
	url TEXT NOT NULL,
	status TEXT NOT NULL,
	interval_s INTEGER NOT NULL,
	timeout_ms INTEGER NOT NULL,
	retries INTEGER NOT NULL,
	http_method TEXT NOT NULL,
	status_codes TEXT NOT NULL,
	keyword TEXT,
	has_headers BOOLEAN NOT NULL,
	has_body BOOLEAN NOT NULL,
	expire_cert_notify BOOLEAN NOT NULL,
	ignore_tls_error BOOLEAN NOT NULL,
	is_public BOOLEAN NOT NULL,
	from_at BIGINT NOT NULL,
	revision INTEGER NOT NULL,
	prober TEXT,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL
);
CREATE INDEX ix_monitor_org_id ON monitor (org_id);
CREATE INDEX ix_monitor_prober ON monitor (status, prober);
CREATE INDEX ix_monitor_project_id ON monitor (project_id);
CREATE TABLE monitor_pause (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	monitor_id INTEGER NOT NULL,
	began_at BIGINT NOT NULL,
	ended_at BIGINT
);
CREATE INDEX ix_monitor_pause_monitor_id ON monitor_pause (monitor_id);
CREATE TABLE monitor_rollup (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	monitor_id INTEGER NOT NULL,
	span_s INTEGER NOT NULL,
	start BIGINT NOT NULL,
	up INTEGER NOT NULL,
	down INTEGER NOT NULL,
	response_sum INTEGER NOT NULL,
	CONSTRAINT uq_monitor_rollup_monitor_id_span_s_start UNIQUE (monitor_id, span_s, start)
);
CREATE INDEX ix_monitor_rollup_start ON monitor_rollup (span_s, start);
CREATE TABLE monitor_state (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	monitor_id INTEGER NOT NULL,
	last_status TEXT,
	last_response_ms INTEGER,
	last_code INTEGER,
	last_at BIGINT,
	last_slot BIGINT,
	lag_ms INTEGER,
	missed INTEGER NOT NULL,
	ssl_subject TEXT,
	ssl_issuer TEXT,
	ssl_valid_to BIGINT,
	ssl_fingerprint TEXT,
	CONSTRAINT uq_monitor_state_monitor_id UNIQUE (monitor_id)
);
CREATE TABLE prober (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	token TEXT NOT NULL,
	lease_until BIGINT NOT NULL,
	created_at BIGINT NOT NULL,
	CONSTRAINT uq_prober_token UNIQUE (token)
);
CREATE TABLE github_binding (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	installation_id BIGINT NOT NULL,
	login TEXT NOT NULL,
	login_key TEXT NOT NULL,
	proved_by TEXT NOT NULL,
	user_id INTEGER NOT NULL,
	created_at BIGINT NOT NULL,
	CONSTRAINT uq_github_binding_org_id_installation_id UNIQUE (org_id, installation_id)
);
CREATE INDEX ix_github_binding_installation_id ON github_binding (installation_id);
CREATE TABLE github_used_state (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	nonce TEXT NOT NULL,
	expires_at BIGINT NOT NULL,
	CONSTRAINT uq_github_used_state_nonce UNIQUE (nonce)
);
CREATE TABLE freed_name (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	kind TEXT NOT NULL,
	name TEXT NOT NULL,
	until BIGINT NOT NULL,
	CONSTRAINT uq_freed_name_kind_name UNIQUE (kind, name)
);
CREATE INDEX ix_freed_name_org_id ON freed_name (org_id);
CREATE TABLE certificate_grant (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	kind TEXT NOT NULL,
	name TEXT NOT NULL,
	at BIGINT NOT NULL,
	CONSTRAINT uq_certificate_grant_org_id_kind_name UNIQUE (org_id, kind, name)
);
CREATE INDEX ix_certificate_grant_org_id_at ON certificate_grant (org_id, at);
CREATE TABLE login_session (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	jti TEXT NOT NULL,
	user_id INTEGER NOT NULL,
	device TEXT NOT NULL,
	address TEXT,
	created_at BIGINT NOT NULL,
	last_seen_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	CONSTRAINT fk_login_session_user_id FOREIGN KEY(user_id) REFERENCES account (id) ON DELETE CASCADE,
	CONSTRAINT uq_login_session_jti UNIQUE (jti)
);
CREATE INDEX ix_login_session_user_id ON login_session (user_id);
CREATE TABLE machine (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	"key" TEXT NOT NULL,
	name TEXT NOT NULL,
	status TEXT NOT NULL,
	address TEXT,
	labels TEXT NOT NULL,
	cpu_count INTEGER NOT NULL,
	memory_mb INTEGER NOT NULL,
	load_milli INTEGER NOT NULL,
	facts TEXT NOT NULL,
	boot TEXT NOT NULL,
	epoch INTEGER NOT NULL,
	heartbeat_at BIGINT NOT NULL,
	gone_at BIGINT,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	CONSTRAINT uq_machine_key UNIQUE ("key"),
	CONSTRAINT uq_machine_name UNIQUE (name)
);
CREATE TABLE app_volume (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	project_id INTEGER NOT NULL,
	machine_id INTEGER NOT NULL,
	created_at BIGINT NOT NULL,
	CONSTRAINT uq_app_volume_project_id UNIQUE (project_id)
);
CREATE TABLE registry (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	host TEXT NOT NULL,
	username TEXT NOT NULL,
	token_host TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	CONSTRAINT uq_registry_org_id_host UNIQUE (org_id, host)
);
CREATE TABLE image_repository (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	name TEXT NOT NULL,
	project_id INTEGER,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	CONSTRAINT uq_image_repository_org_id_name UNIQUE (org_id, name)
);
CREATE INDEX ix_image_repository_project_id ON image_repository (project_id);
CREATE TABLE image_part (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	repository_id INTEGER NOT NULL,
	digest TEXT NOT NULL,
	size BIGINT NOT NULL,
	media_type TEXT NOT NULL,
	used_at BIGINT NOT NULL,
	CONSTRAINT fk_image_part_repository_id FOREIGN KEY(repository_id) REFERENCES image_repository (id),
	CONSTRAINT uq_image_part_repository_id_digest UNIQUE (repository_id, digest)
);
CREATE INDEX ix_image_part_org_id_digest ON image_part (org_id, digest);
CREATE TABLE image_tag (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	repository_id INTEGER NOT NULL,
	name TEXT NOT NULL,
	digest TEXT NOT NULL,
	updated_at BIGINT NOT NULL,
	CONSTRAINT fk_image_tag_repository_id FOREIGN KEY(repository_id) REFERENCES image_repository (id),
	CONSTRAINT uq_image_tag_repository_id_name UNIQUE (repository_id, name)
);
CREATE TABLE image_layer (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	org_id INTEGER NOT NULL,
	cache TEXT NOT NULL,
	"key" TEXT NOT NULL,
	digest TEXT NOT NULL,
	size BIGINT NOT NULL,
	created_at BIGINT NOT NULL,
	used_at BIGINT NOT NULL,
	CONSTRAINT uq_image_layer_org_id_cache_key UNIQUE (org_id, cache, "key")
);
CREATE INDEX ix_image_layer_used_at ON image_layer (used_at);
CREATE TABLE route_generation (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	value BIGINT NOT NULL
);
CREATE TABLE gateway (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	"key" TEXT NOT NULL,
	generation BIGINT NOT NULL,
	heartbeat_at BIGINT NOT NULL,
	CONSTRAINT uq_gateway_key UNIQUE ("key")
);
INSERT INTO alembic_version VALUES ('0025');
