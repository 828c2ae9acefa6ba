{{- /* Labels as one line of JSON, which is YAML as well. The part is the role of a pod. */ -}}
{{- define "moorage.labels" -}}
{"app.kubernetes.io/name": "moorage", "app.kubernetes.io/instance": {{ .root.Release.Name | quote }}, "app.kubernetes.io/component": {{ .part | quote }}, "app.kubernetes.io/version": {{ .root.Chart.AppVersion | quote }}}
{{- end -}}

{{- define "moorage.selector" -}}
{"app.kubernetes.io/name": "moorage", "app.kubernetes.io/instance": {{ .root.Release.Name | quote }}, "app.kubernetes.io/component": {{ .part | quote }}}
{{- end -}}

{{- /* Labels of pods of the platform itself: network policies let pods with moorage.dev/part connect to apps. */ -}}
{{- define "moorage.podLabels" -}}
{"app.kubernetes.io/name": "moorage", "app.kubernetes.io/instance": {{ .root.Release.Name | quote }}, "app.kubernetes.io/component": {{ .part | quote }}, "moorage.dev/part": {{ .part | quote }}{{ if or (eq .part "platform") (eq .part "serve") }}, "moorage.dev/api": "true"{{ end }}}
{{- end -}}

{{- define "moorage.image" -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
{{- end -}}

{{- define "moorage.pullSecrets" -}}
[{{ range $index, $name := .Values.image.pullSecrets }}{{ if $index }}, {{ end }}{"name": {{ $name | quote }}}{{ end }}]
{{- end -}}

{{- /* Variables of all processes, indented for a container. */ -}}
{{- define "moorage.env" }}
            - {name: MOORAGE_MODE, value: production}
            - {name: MOORAGE_ENGINE, value: kubernetes}
            - {name: MOORAGE_HOST, value: "0.0.0.0"}
            - {name: MOORAGE_DATA, value: /var/lib/moorage}
            - {name: MOORAGE_APPS_DOMAIN, value: {{ .Values.domain | quote }}}
            - {name: MOORAGE_BASE_URL, value: {{ .Values.urls.api | quote }}}
            - {name: MOORAGE_EDGE_URL, value: {{ .Values.urls.functions | quote }}}
            - {name: MOORAGE_KUBERNETES_NAMESPACE, value: {{ .Release.Namespace | quote }}}
            - {name: MOORAGE_KUBERNETES_PREFIX, value: {{ .Values.organizationPrefix | quote }}}
            - {name: MOORAGE_KUBERNETES_STORAGE_CLASS, value: {{ .Values.storageClass | quote }}}
            - {name: MOORAGE_KUBERNETES_APP_IMAGE, value: {{ template "moorage.image" . }}}
            {{- if .Values.builds.jobs }}
            - {name: MOORAGE_KUBERNETES_BUILD_IMAGE, value: {{ template "moorage.image" . }}}
            - {name: MOORAGE_KUBERNETES_DOCKERFILES, value: {{ .Values.builds.dockerfiles | quote }}}
            {{- end }}
            - {name: MOORAGE_KUBERNETES_DATABASE_IMAGE, value: {{ .Values.databases.image | quote }}}
            - {name: MOORAGE_REGISTRY_URL, value: {{ .Values.registry.url | quote }}}
            {{- if .Values.registry.secret }}
            - {name: MOORAGE_REGISTRY_USERNAME, valueFrom: {secretKeyRef: {name: {{ .Values.registry.secret | quote }}, key: username}}}
            - {name: MOORAGE_REGISTRY_PASSWORD, valueFrom: {secretKeyRef: {name: {{ .Values.registry.secret | quote }}, key: password}}}
            {{- end }}
            {{- if .Values.database.bundled.enabled }}
            - {name: MOORAGE_DATABASE_URL, valueFrom: {secretKeyRef: {name: {{ .Release.Name }}-postgres, key: url}}}
            {{- else }}
            - {name: MOORAGE_DATABASE_URL, valueFrom: {secretKeyRef: {name: {{ .Values.database.secret | quote }}, key: url}}}
            {{- end }}
            - {name: MOORAGE_ARTIFACTS_URL, value: {{ .Values.artifacts.url | quote }}}
            {{- if .Values.artifacts.bundled.enabled }}
            - {name: MOORAGE_ARTIFACTS_ENDPOINT, value: "http://{{ .Release.Name }}-s3:9000"}
            - {name: MOORAGE_ARTIFACTS_ALLOW_HTTP, value: "1"}
            {{- else }}
            - {name: MOORAGE_ARTIFACTS_ENDPOINT, value: {{ .Values.artifacts.endpoint | quote }}}
            {{- end }}
            - {name: MOORAGE_ARTIFACTS_REGION, value: {{ .Values.artifacts.region | quote }}}
            - {name: MOORAGE_ARTIFACTS_ACCESS_KEY, valueFrom: {secretKeyRef: {name: {{ .Values.artifacts.secret | quote }}, key: access-key}}}
            - {name: MOORAGE_ARTIFACTS_SECRET_KEY, valueFrom: {secretKeyRef: {name: {{ .Values.artifacts.secret | quote }}, key: secret-key}}}
            - {name: MOORAGE_MASTER_KEY, valueFrom: {secretKeyRef: {name: {{ .Values.keysSecret | quote }}, key: master-key}}}
            - {name: MOORAGE_SESSION_SECRET, valueFrom: {secretKeyRef: {name: {{ .Values.keysSecret | quote }}, key: session-secret}}}
            {{- range $name, $value := .Values.env }}
            - {name: {{ $name }}, value: {{ $value | quote }}}
            {{- end }}
{{- end }}

{{- /* Variables of processes that call functions in pods of their own. */ -}}
{{- define "moorage.edges" }}
            {{- if .Values.functions.replicas }}
            - {name: MOORAGE_EDGE_ADDRESS, value: "{{ .Release.Name }}-functions:{{ .Values.services.functions.port }}"}
            - {name: MOORAGE_EDGE_HOSTS, value: "{{ range $number := until (int .Values.functions.replicas) }}{{ if $number }},{{ end }}{{ $.Release.Name }}-functions-{{ $number }}.{{ $.Release.Name }}-functions-pods:8084{{ end }}"}
            {{- end }}
{{- end }}
