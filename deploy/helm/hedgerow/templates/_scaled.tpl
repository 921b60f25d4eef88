{{/* The number of replicas follows the load that makes callers wait, which is not always CPU use. KEDA divides the
result of a query by the number of replicas, so a threshold is the load of one replica. */}}
{{- define "hedgerow.scaled" -}}
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: {{ .name }}
  labels: {{- include "hedgerow.labels" .root | nindent 4 }}
spec:
  scaleTargetRef: {name: {{ .name }}}
  minReplicaCount: {{ .values.scale.min | default 2 }}
  maxReplicaCount: {{ .values.scale.max | default 8 }}
  {{- with .scaleDown }}
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        scaleDown: {{- toYaml . | nindent 10 }}
  {{- end }}
  triggers:
    {{- with .values.scale.cpu }}
    - type: cpu
      metricType: Utilization
      metadata: {value: {{ . | quote }}}
    {{- end }}
    {{- range .triggers }}
    - type: prometheus
      metricType: AverageValue
      metadata:
        serverAddress: {{ $.root.Values.autoscaling.prometheus }}
        query: {{ .query | quote }}
        threshold: {{ .threshold | quote }}
    {{- end }}
{{- end }}
