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

{{- /* suffix: of the names of objects without a namespace, so that each release has its own. */}}
{{- define "yardmaster.suffix" -}}
{{- if ne $.Release.Namespace "yardmaster-system" }}-{{ $.Release.Namespace }}{{ end }}
{{- end }}

{{- /* controllers: values.controllers as JSON. Without objects of the cluster, * does not include sessions: nothing would keep a user
from creating them in the name of others. */}}
{{- define "yardmaster.controllers" -}}
{{- $selectors := .Values.controllers }}
{{- if and (has "*" $selectors) (not .Values.clusterObjects.create) }}
{{- range $name := list "agenticsession" "egressproxy" }}
{{- if not (has $name $selectors) }}{{ $selectors = append $selectors (printf "-%s" $name) | uniq }}{{ end }}
{{- end }}
{{- end }}
{{- $selectors | toJson }}
{{- end }}

{{- /* isEnabled: not empty if values.controllers enables the controller .name, as the flag --controllers does. */}}
{{- define "yardmaster.isEnabled" -}}
{{- $selectors := include "yardmaster.controllers" .root | fromJsonArray }}
{{- if has .name $selectors }}true
{{- else if has (printf "-%s" .name) $selectors }}
{{- else if has "*" $selectors }}true
{{- end }}
{{- end }}

{{- /* env: the variables of the operator that depend on values. */}}
{{- define "yardmaster.env" -}}
{{- $flags := dict "controllers" (include "yardmaster.controllers" . | fromJsonArray | join ",") }}
{{- if not .Values.clusterObjects.create }}
{{- $flags = merge $flags (dict "webhook" "false" "metrics-bind-address" "0") }}
{{- end }}
{{- with .Values.report.namespaces }}{{ $_ := set $flags "report-namespaces" (join "," .) }}{{ end }}
{{- if .Values.report.openReports }}{{ $_ := set $flags "report-openreports" "true" }}{{ end }}
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

{{- /* webhookAnnotations: with it, cert-manager writes its CA. */}}
{{- define "yardmaster.webhookAnnotations" -}}
{{- if .Values.certManager.enabled -}}
cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/yardmaster-webhook
{{- end }}
{{- end }}

{{- /* webhookCA: the certificate authority and the secret path of the webhooks as JSON, in base64 where the Secret has base64:
those of the Secret in the cluster, or new ones, which all templates of a release share. Empty if somebody else creates them. */}}
{{- define "yardmaster.webhookCA" -}}
{{- if and .Values.clusterObjects.create .Values.webhookCA.create (not .Values.certManager.enabled) }}
{{- if not (hasKey .Values.webhookCA "shared") }}
{{- $stored := dig "data" dict (lookup "v1" "Secret" .Release.Namespace "yardmaster-webhook-ca") }}
{{- if $stored }}
{{- $_ := set .Values.webhookCA "shared" (dict "certificate" (index $stored "ca.crt") "key" (index $stored "ca.key") "path" (b64dec $stored.path)) }}
{{- else }}
{{- $ca := genCAWithKey "yardmaster-webhook-ca" 3650 (genPrivateKey "ecdsa") }}
{{- $_ := set .Values.webhookCA "shared" (dict "certificate" (b64enc $ca.Cert) "key" (b64enc $ca.Key) "path" (randAlphaNum 26 | lower)) }}
{{- end }}
{{- end }}
{{- .Values.webhookCA.shared | toJson }}
{{- else }}{}
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
