{{- define "yardmaster.labels" -}}
app.kubernetes.io/name: yardmaster
app.kubernetes.io/part-of: yardmaster
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{- define "yardmaster.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* isEnabled: not empty if values.controllers enables the controller .name, as the flag --controllers does. */}}
{{- define "yardmaster.isEnabled" -}}
{{- $selectors := .root.Values.controllers }}
{{- if has .name $selectors }}true
{{- else if has (printf "-%s" .name) $selectors }}
{{- else if has "*" $selectors }}true
{{- end }}
{{- end }}

{{- /* env: the variables of the operator that depend on values. */}}
{{- define "yardmaster.env" -}}
{{- $flags := dict "controllers" (join "," .Values.controllers) }}
{{- with .Values.report.namespaces }}{{ $_ := set $flags "report-namespaces" (join "," .) }}{{ end }}
{{- if .Values.report.openReports }}{{ $_ := set $flags "report-openreports" "true" }}{{ end }}
{{- if .Values.certManager.enabled }}{{ $_ := set $flags "cert-management" "external" }}{{ end }}
{{- if .Values.creatorPolicy.enabled }}{{ $_ := set $flags "mutating-webhook" "false" }}{{ end }}
{{- include "yardmaster.setBrokerFlags" (dict "root" . "flags" $flags) }}
{{- include "yardmaster.variables" (mergeOverwrite $flags .Values.flags) }}
{{- end }}

{{- /* gatewayEnv: the variables of the gateway that depend on values. */}}
{{- define "yardmaster.gatewayEnv" -}}
{{- $flags := dict }}
{{- include "yardmaster.setBrokerFlags" (dict "root" . "flags" $flags) }}
{{- include "yardmaster.variables" (mergeOverwrite $flags .Values.gateway.flags) }}
{{- end }}

{{- /* setBrokerFlags: sets the flags of the default broker in the dictionary .flags. */}}
{{- define "yardmaster.setBrokerFlags" -}}
{{- if .root.Values.broker.urlSecret }}
{{- range $value, $flag := dict "urlSecret" "url-secret" "engine" "engine" "tlsSecret" "tls-secret" "credentialsSecret" "credentials-secret" "jetstreamDomain" "jetstream-domain" "inboxPrefix" "inbox-prefix" "sentinelMaster" "sentinel-master" "sentinelCredentialsSecret" "sentinel-credentials-secret" }}
{{- with index $.root.Values.broker $value }}{{ $_ := set $.flags (printf "broker-%s" $flag) . }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* variables: a dictionary of flags as environment variables. */}}
{{- define "yardmaster.variables" -}}
{{- range $name, $value := . }}
- name: YARDMASTER_{{ $name | upper | replace "-" "_" }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- end }}

{{- /* brokerSecrets: the Secrets of the default broker, as a JSON list. A URL is name or name/key. */}}
{{- define "yardmaster.brokerSecrets" -}}
{{- $names := list (splitList "/" .Values.broker.urlSecret | first) }}
{{- with .Values.broker.tlsSecret }}{{ $names = append $names . }}{{ end }}
{{- with .Values.broker.credentialsSecret }}{{ $names = append $names . }}{{ end }}
{{- with .Values.broker.sentinelCredentialsSecret }}{{ $names = append $names . }}{{ end }}
{{- uniq $names | toJson }}
{{- end }}

{{- /* webhookAnnotations: with one, the operator writes secret paths; with the other, cert-manager writes the CA. */}}
{{- define "yardmaster.webhookAnnotations" -}}
{{- if .Values.certManager.enabled -}}
cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/yardmaster-webhook
{{- else -}}
yardmaster.dev/secret-paths: "true"
{{- end }}
{{- end }}

{{- define "yardmaster.apiServerPeers" -}}
{{- range .Values.networkPolicy.apiServerCIDRs }}
- ipBlock: {cidr: {{ . | quote }}}
{{- end }}
{{- end }}

{{- define "yardmaster.monitorLabels" -}}
{{- with .Values.monitoring.labels }}{{ toYaml . }}{{ end }}
{{- end }}
