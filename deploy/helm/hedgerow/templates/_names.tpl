{{/* The metadata of every object. Names are fixed: one mesh lives in one namespace. */}}
{{- define "hedgerow.labels" -}}
app.kubernetes.io/part-of: hedgerow
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* hedgerow/identities.py as JSON: each service's port and callers. Written by `python -m scripts.helm_files`. */}}
{{- define "hedgerow.identities" -}}
{{ .Files.Get "files/services.json" }}
{{- end }}

{{/* Identities that run in this release, as JSON: services by their names. */}}
{{- define "hedgerow.running" -}}
{{- $found := list "gateway" "router" "llm" "control" -}}
{{- range list "cache" "vision" "audio" -}}
{{- if (index $.Values .).enabled }}{{ $found = append $found . }}{{ end -}}
{{- end -}}
{{ concat $found (keys .Values.services | sortAlpha) | toJson }}
{{- end }}

{{/* Services of the topology, as JSON: {"llm-fast": {"identity": "llm", "hosts": ["llm-fast"]}, …}. Deployments that serve
one model are one service, named after the first of them. */}}
{{- define "hedgerow.services" -}}
{{- $found := dict -}}
{{- range include "hedgerow.running" . | fromJsonArray -}}
{{- if not (has . (list "llm" "control")) }}{{ $_ := set $found . (dict "identity" . "hosts" (list .)) }}{{ end -}}
{{- end -}}
{{- range $model, $hosts := include "hedgerow.hosts" . | fromJson -}}
{{- $_ := set $found (first $hosts) (dict "identity" "llm" "hosts" $hosts) -}}
{{- end -}}
{{ $found | toJson }}
{{- end }}

{{/* The Deployments of each model, as JSON. */}}
{{- define "hedgerow.hosts" -}}
{{- $hosts := dict -}}
{{- range .Values.models -}}
{{- $_ := set $hosts .name (append (index $hosts .name | default list) (printf "llm-%s" .service)) -}}
{{- end -}}
{{ $hosts | toJson }}
{{- end }}

{{- define "hedgerow.mtls" -}}
{{- if ne .Values.tls.mode "none" }}true{{ end -}}
{{- end }}

{{/* Whether an identity stores data in Redis: (dict "root" $ "identity" "cache"). */}}
{{- define "hedgerow.redis" -}}
{{- if and (ne .root.Values.redis.mode "none") (has .identity (list "gateway" "cache" "router")) }}true{{ end -}}
{{- end }}

{{- define "hedgerow.tenants" -}}
{{- if .Values.tenants.inline }}tenants-inline{{ else }}{{ .Values.tenants.secretName }}{{ end -}}
{{- end }}
