{{/*
One of our services: ServiceAccount, headless Service, PodDisruptionBudget, Deployment and ScaledObject.
(dict "root" $ "name" "llm-fast" "identity" "llm" "values" $values "own" $own), and optionally "image", "gpus", "source",
"environment" (a YAML list), "volumes" (of {volume, mountPath, readOnly}), "startupSeconds", "strategy", "triggers",
"scaleDown".
*/}}
{{- define "hedgerow.service" -}}
{{- $root := .root -}}
{{- $mtls := eq (include "hedgerow.mtls" $root) "true" -}}
{{- $port := (index (include "hedgerow.identities" $root | fromJson) .identity).port -}}
{{- $http := and (eq .identity "gateway") $root.Values.gateway.http.enabled -}}
{{- $scaled := and $root.Values.autoscaling.enabled .values.scale -}}
{{- $volumes := concat (include "hedgerow.volumes" . | fromYamlArray) (.volumes | default list) -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  labels: {{- include "hedgerow.labels" $root | nindent 4 }}
automountServiceAccountToken: false
---
apiVersion: v1
kind: Service
metadata:
  name: {{ .name }}
  labels: {{- include "hedgerow.labels" $root | nindent 4 }}
spec:
  clusterIP: None  # its name is the addresses of its pods that are ready: what the control plane looks up
  selector: {app.kubernetes.io/name: {{ .name }}, app.kubernetes.io/part-of: hedgerow}
  ports:
    - {name: grpc, port: {{ $port }}, targetPort: grpc, appProtocol: grpc}
    {{- if $http }}
    - {name: http, port: {{ $root.Values.gateway.http.port }}, targetPort: http}
    {{- end }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  labels: {{- include "hedgerow.labels" $root | nindent 4 }}
spec:
  maxUnavailable: 1
  selector: {matchLabels: {app.kubernetes.io/name: {{ .name }}, app.kubernetes.io/part-of: hedgerow}}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  labels:
    app.kubernetes.io/name: {{ .name }}
    {{- include "hedgerow.labels" $root | nindent 4 }}
spec:
  {{- if not $scaled }}
  replicas: {{ .values.replicas | default 2 }}
  {{- end }}
  revisionHistoryLimit: 3
  strategy: {{- .strategy | default (dict "rollingUpdate" (dict "maxUnavailable" 0 "maxSurge" 1)) | toYaml | nindent 4 }}
  selector: {matchLabels: {app.kubernetes.io/name: {{ .name }}, app.kubernetes.io/part-of: hedgerow}}
  template:
    metadata:
      labels: {app.kubernetes.io/name: {{ .name }}, app.kubernetes.io/part-of: hedgerow, hedgerow/identity: {{ .identity }}}
      {{- with (include "hedgerow.choices" . | fromJson).annotations }}
      annotations: {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ .name }}
      {{- include "hedgerow.pod" $root | nindent 6 }}
      {{- include "hedgerow.placement" . | trim | nindent 6 }}
      # Longer than a service's own grace and what it does after its last call.
      terminationGracePeriodSeconds: {{ add $root.Values.shutdown.graceSeconds 15 }}
      {{- include "hedgerow.spread" .name | nindent 6 }}
      containers:
        - name: service
          image: {{ printf "%s/%s:%s" $root.Values.images.prefix (.image | default .identity) ($root.Values.images.tag | default $root.Chart.AppVersion) }}
          imagePullPolicy: {{ $root.Values.images.pullPolicy }}
          ports:
            - {name: grpc, containerPort: {{ $port }}}
            {{- if $http }}
            - {name: http, containerPort: {{ $root.Values.gateway.http.port }}}
            {{- end }}
            - {name: metrics, containerPort: 9464}
          env:
            {{- include "hedgerow.environment" . | trim | nindent 12 }}
            {{- with .environment }}{{ . | nindent 12 }}{{ end }}
          {{- /* A kubelet's gRPC probes have no certificate: with mutual TLS it asks the metrics port. */}}
          {{- $ready := $mtls | ternary (dict "httpGet" (dict "path" "/readyz" "port" "metrics")) (dict "grpc" (dict "port" $port)) }}
          {{- /* A gateway has started before it is ready, for which a model must have served once. */}}
          {{- $started := eq .identity "gateway" | ternary (dict "httpGet" (dict "path" "/livez" "port" "metrics")) $ready }}
          startupProbe:
            {{- toYaml $started | nindent 12 }}
            periodSeconds: 3
            failureThreshold: {{ div (.startupSeconds | default 60) 3 }}
            timeoutSeconds: 2
          readinessProbe:
            {{- toYaml $ready | nindent 12 }}
            periodSeconds: 5
            failureThreshold: 2
            timeoutSeconds: 2
          livenessProbe:
            httpGet: {path: /livez, port: metrics}
            periodSeconds: 10
            failureThreshold: 6
            timeoutSeconds: 2
          {{- $resources := deepCopy .values.resources }}
          {{- if .gpus }}{{ $_ := set $resources.limits "nvidia.com/gpu" .gpus }}{{ end }}
          resources: {{- toYaml $resources | nindent 12 }}
          {{- include "hedgerow.container" $root | nindent 10 }}
          volumeMounts:
            {{- range $volumes }}
            - {name: {{ .volume.name }}, mountPath: {{ .mountPath }}{{ if .readOnly }}, readOnly: true{{ end }}}
            {{- end }}
      volumes:
        {{- range $volumes }}
        - {{ toYaml .volume | nindent 10 | trim }}
        {{- end }}
{{- if $scaled }}
---
{{ include "hedgerow.scaled" . }}
{{- end }}
{{- end }}

{{/* The volume mounts of every service. */}}
{{- define "hedgerow.volumes" -}}
{{- $gpu := gt (int .gpus) 0 -}}
{{- $large := or $gpu (eq (.source | default "") "hub") -}}
- {mountPath: /tmp, volume: {name: tmp, emptyDir: {sizeLimit: {{ $large | ternary "16Gi" "1Gi" }}}}}
{{- if include "hedgerow.mtls" .root }}
- {mountPath: /tls, readOnly: true, volume: {name: tls, secret: {secretName: {{ .identity }}-tls, defaultMode: 288}}}
{{- end }}
{{- if and (include "hedgerow.redis" .) .root.Values.redis.caSecret }}
- {mountPath: /redis-ca, readOnly: true, volume: {name: redis-ca, secret: {secretName: {{ .root.Values.redis.caSecret }}, defaultMode: 288}}}
{{- end }}
{{- if eq (.source | default "") "volume" }}
- {mountPath: /models, readOnly: true, volume: {name: models, persistentVolumeClaim: {claimName: models, readOnly: true}}}
{{- end }}
{{- if eq (.source | default "") "hub" }}
- {mountPath: /var/cache/hub, volume: {name: hub, persistentVolumeClaim: {claimName: hub}}}
{{- end }}
{{- if and (eq .identity "llm") (ne (.source | default "") "provider") }}
- {mountPath: /dev/shm, volume: {name: shm, emptyDir: {medium: Memory, sizeLimit: {{ $gpu | ternary "4Gi" "512Mi" }}}}}
{{- end }}
{{- end }}

{{/* Fields of every pod. */}}
{{- define "hedgerow.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false  # settings are strict: a variable of another Service could look like an unknown setting
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* The operator's values for the pods, as JSON: `pods`, overridden by the service's own `pod`. */}}
{{- define "hedgerow.choices" -}}
{{- mergeOverwrite (deepCopy .root.Values.pods) (deepCopy (.values.pod | default dict)) | toJson -}}
{{- end }}

{{/* The nodes on which the pods run. */}}
{{- define "hedgerow.placement" -}}
{{- $choices := include "hedgerow.choices" . | fromJson -}}
{{- $tolerations := $choices.tolerations | default list -}}
{{- if .gpus -}}
{{- $tolerations = append $tolerations (dict "key" "nvidia.com/gpu" "operator" "Exists" "effect" "NoSchedule") -}}
{{- end -}}
{{- with $choices.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $choices.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $choices.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "hedgerow.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "hedgerow.spread" -}}
topologySpreadConstraints:
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - topologyKey: {{ . }}
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector: {matchLabels: {app.kubernetes.io/name: {{ $ }}, app.kubernetes.io/part-of: hedgerow}}
{{- end }}
{{- end }}
