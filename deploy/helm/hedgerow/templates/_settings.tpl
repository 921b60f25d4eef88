{{/*
The variables of a service, as a YAML list:
(dict "root" $ "name" "cache" "identity" "cache" "values" .Values.cache "own" $own).
`own` and `secrets` hold the chart's values for the service; the operator's settings override both.
*/}}
{{- define "hedgerow.environment" -}}
{{- $root := .root -}}
{{- $prefix := printf "HEDGEROW_%s_" (upper .identity) -}}
{{- $own := dict
      "METRICS_ADDRESS" "0.0.0.0:9464"
      "GRACE_MS" (mul $root.Values.shutdown.graceSeconds 1000)
      "LAME_DUCK_MS" (mul $root.Values.shutdown.lameDuckSeconds 1000) -}}
{{- if include "hedgerow.mtls" $root -}}
{{- $_ := set $own "TLS_DIR" "/tls" -}}
{{- else -}}
{{- $_ := set $own "PLAINTEXT" true -}}
{{- end -}}
{{- with $root.Values.tracing.endpoint -}}
{{- $_ := set $own "OTLP_ENDPOINT" . -}}
{{- $_ := set $own "TRACE_RATIO" $root.Values.tracing.ratio -}}
{{- end -}}
{{- $secrets := merge (dict) (.secrets | default dict) (.values.secrets | default dict) -}}
{{- if include "hedgerow.redis" . -}}
{{- if $root.Values.redis.url }}{{ $_ := set $own "REDIS_URL" $root.Values.redis.url }}
{{- else }}{{ $_ := set $secrets "REDIS_URL" $root.Values.redis.urlSecret }}{{ end -}}
{{- end -}}
{{- $decided := dict "ADDRESS" "nothing: the image" "METRICS_ADDRESS" "nothing: probes ask there" "TLS_DIR" "tls" "PLAINTEXT" "tls"
      "OTLP_ENDPOINT" "tracing" "TRACE_RATIO" "tracing" "GRACE_MS" "shutdown" "LAME_DUCK_MS" "shutdown" "REDIS_URL" "redis"
      "WORKERS" "gateway.replicas" "HTTP_ADDRESS" "gateway.http" "TENANTS_FILE" "tenants" "LLM_ADDRESSES" "models"
      "MODELS" "models" "MODEL_NAME" "models" "ENCRYPTION_KEY" "cache.encryptionKey" "DATABASE" "cache.persistence"
      "COLLECTIONS_DATABASE" "cache.persistence" "TOPOLOGY" "control.topology" "CACHE_ADDRESS" "cache.enabled"
      "ROUTER_ADDRESS" "router" "VISION_ADDRESS" "vision.enabled" "AUDIO_ADDRESS" "audio.enabled"
      "STAGE_ADDRESSES" "services" -}}
{{- range $name, $_ := merge (dict) (.values.settings | default dict) (.values.secrets | default dict) -}}
{{- with index $decided $name }}{{ fail (printf "%s.settings: %s is decided by %s" $.name $name .) }}{{ end -}}
{{- end -}}
{{- $settings := mergeOverwrite $own (deepCopy (.own | default dict)) (deepCopy (.values.settings | default dict)) -}}
{{- range $name, $value := $settings }}
- name: {{ $prefix }}{{ $name }}
  value: {{ (kindIs "string" $value | ternary $value (toJson $value)) | replace "$(" "$$(" | quote }}
{{- end }}
{{- range $name, $reference := $secrets }}
- name: {{ $prefix }}{{ $name }}
  valueFrom: {secretKeyRef: {name: {{ $reference.name }}, key: {{ $reference.key }}}}
{{- end }}
{{- end }}

{{/* More environment variables of an engine: (dict "root" $ "source" "hub"). A volume keeps its downloads. */}}
{{- define "hedgerow.engine" -}}
- {name: HOME, value: /tmp}
{{- if eq .source "hub" }}
{{- $token := .root.Values.storage.hub.tokenSecret }}
- {name: HF_HOME, value: /var/cache/hub}
- {name: VLLM_CACHE_ROOT, value: /var/cache/hub/vllm}
- name: HF_TOKEN
  valueFrom: {secretKeyRef: {name: {{ $token.name }}, key: {{ $token.key }}, optional: true}}
{{- end }}
{{- end }}

{{/* More environment variables of the gateway: its own name, and the address of the control plane. */}}
{{- define "hedgerow.discovery" -}}
- {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- name: GRPC_XDS_BOOTSTRAP_CONFIG
  value: {{ include "hedgerow.xds" . | quote }}
{{- end }}

{{/* Where gRPC's xds:/// channels, and the gateway itself, find the control plane: JSON (gRFC A27, A29). */}}
{{- define "hedgerow.xds" -}}
{{- $files := dict "ca_certificate_file" "/tls/ca.crt" "certificate_file" "/tls/tls.crt"
      "private_key_file" "/tls/tls.key" "refresh_interval" "60s" -}}
{{- $port := (include "hedgerow.identities" . | fromJson).control.port -}}
{{- $server := dict "server_uri" (printf "control.%s:%v" .Release.Namespace $port)
      "server_features" (list "xds_v3") "channel_creds" (list (dict "type" "insecure")) -}}
{{- $bootstrap := dict "node" (dict "id" "$(POD_NAME)" "locality" (dict "region" .Values.region)) -}}
{{- if include "hedgerow.mtls" . -}}
{{- $_ := set $server "channel_creds" (list (dict "type" "tls" "config" $files)) -}}
{{- $_ := set $bootstrap "certificate_providers" (dict "mesh" (dict "plugin_name" "file_watcher" "config" $files)) -}}
{{- end -}}
{{- $_ := set $bootstrap "xds_servers" (list $server) -}}
{{ $bootstrap | toJson }}
{{- end }}

{{/* The topology of the control plane, YAML: the Deployments of each service, in this region and in others. */}}
{{- define "hedgerow.topology" -}}
{{- $identities := include "hedgerow.identities" . | fromJson -}}
{{- $services := dict -}}
{{- range $name, $service := include "hedgerow.services" . | fromJson -}}
{{- $identity := $service.identity -}}
{{- $port := (index $identities $identity).port -}}
{{- $more := dict -}}
{{- if and (eq $identity "gateway") $.Values.gateway.http.enabled -}}
{{- $_ := set $more "http_port" $.Values.gateway.http.port -}}
{{- end -}}
{{- $endpoints := list -}}
{{- range $host := $service.hosts -}}
{{- $own := dict "address" (printf "%s:%v" $host $port) -}}
{{- with $.Values.region }}{{ $_ := set $own "region" . }}{{ end -}}
{{- $endpoints = append $endpoints (merge $own $more) -}}
{{- range $region, $where := $.Values.regions -}}
{{- if ne $region $.Values.region -}}
{{- $there := dict "address" (printf "%s.%s:%v" $host $where.domain $port) "region" $region -}}
{{- $endpoints = append $endpoints (merge $there $more) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $service := dict "endpoints" $endpoints -}}
{{- if eq $identity "gateway" }}{{ $_ := set $service "balance" "least_request" }}{{ end -}}
{{- if eq $identity "cache" }}{{ $_ := set $service "balance" "ring_hash" }}{{ end -}}
{{- $_ := set $services $name $service -}}
{{- end -}}
{{- $topology := dict "mtls" (eq (include "hedgerow.mtls" .) "true") "services" $services -}}
{{- if .Values.regions -}}
{{- $regions := dict -}}
{{- range $name, $where := .Values.regions -}}
{{- $_ := set $regions $name (dict "latitude" $where.latitude "longitude" $where.longitude) -}}
{{- end -}}
{{- $_ := set $topology "regions" $regions -}}
{{- end -}}
{{- if .Values.edge.enabled -}}
{{- $_ := set $topology "edge" (dict "address" "0.0.0.0:8443" "tls" .Values.edge.tls.enabled) -}}
{{- end -}}
{{- mergeOverwrite $topology (deepCopy .Values.control.topology) | toYaml -}}
{{- end }}
