package main

import (
	"fmt"
	"slices"
	"strings"
)

// templates are those of all manifests but the CustomResourceDefinitions. Conditions and values refer to the
// root as $, because some templates are inside a range.
var templates = slices.Concat(
	[]template{
		{name: "deployment", sources: []string{"manager/deployment.yaml"}, change: changeDeployment},
		{name: "manager", sources: []string{
			"manager/disruption_budget.yaml", "manager/metrics_service.yaml", "manager/network_check_service.yaml", "manager/worker_admin_secret.yaml",
		}},
		{name: "network_policy", sources: []string{"manager/network_policy.yaml"}, when: "and $.Values.networkPolicy.create (not $.Values.networkPolicy.apiServerCIDRs)"},
		{
			name: "webhook_network_policy", sources: []string{"components/webhook-network-policy/network_policy.yaml"},
			when: "and $.Values.networkPolicy.create $.Values.networkPolicy.apiServerCIDRs", change: changeWebhookNetworkPolicy,
		},
		{name: "service_account", sources: []string{"rbac/operator/service_account.yaml"}, change: changeServiceAccount},
		{name: "rbac", sources: []string{
			"rbac/operator/leader_election.yaml", "rbac/operator/metrics.yaml", "rbac/operator/api_server.yaml",
			"rbac/operator/worker_admin.yaml", "rbac/operator/own_pod.yaml", "rbac/operator/identity.yaml", "rbac/operator/admission_policies.yaml",
		}},
		{name: "rbac_broker", sources: []string{"components/default-broker/role.yaml"}, when: "$.Values.broker.urlSecret", change: changeBrokerRole},
		{name: "rbac_users", isShared: true, sources: []string{
			"rbac/users/installer.yaml", "rbac/users/jobreport.yaml", "rbac/users/metrics.yaml", "rbac/users/producer.yaml", "rbac/users/queue.yaml",
			"rbac/users/schedule.yaml", "rbac/users/sequentialjob.yaml", "rbac/users/session.yaml",
		}},
		{name: "admission", isShared: true, sources: []string{"admission/policies.yaml"}},
		{name: "webhook", sources: []string{"webhook/service.yaml"}, when: "$.Values.clusterObjects.create"},
		{name: "webhook_configurations", sources: []string{"webhook/webhooks.yaml"}, change: changeWebhooks},
		{
			name: "creator_policy", sources: []string{"components/admission-policy/policy.yaml"},
			when: "and $.Values.creatorPolicy.enabled (" + recordsUsers + ")", change: changeAdmissionPolicy,
		},
		{name: "certificate", sources: []string{"components/cert-manager/certificate.yaml"}, when: "$.Values.certManager.enabled", change: changeCertificate},
		{name: "service_monitor", sources: []string{"components/prometheus/service_monitor.yaml"}, when: "$.Values.monitoring.serviceMonitor", change: addMonitorLabels},
		{name: "pod_monitor", sources: []string{"components/prometheus/pod_monitor.yaml"}, when: "$.Values.monitoring.podMonitor", change: addMonitorLabels},
		{name: "alerts_jobreport", sources: []string{"components/jobreport-alerts/rules.yaml"}, when: "$.Values.monitoring.jobReportAlerts", change: addMonitorLabels},
		{name: "alerts_queue", sources: []string{"components/queue-alerts/rules.yaml"}, when: "$.Values.monitoring.queueAlerts", change: addMonitorLabels},
	},
	gatewayTemplates,
	finalizerTemplates("queue", "sequentialjob", "workerpool"),
	[]template{
		reportTemplate("controllers/jobreport", isEnabled("jobreport")),
		reportTemplate("jobreport-openreports", "and $.Values.report.openReports ("+isEnabled("jobreport")+")"),
	},
)

// isEnabled is the condition that a controller runs.
func isEnabled(controller string) string {
	return fmt.Sprintf(`include "yardmaster.isEnabled" (dict "root" $ "name" %q)`, controller)
}

// recordsUsers is the condition that a controller runs whose kind records users.
var recordsUsers = fmt.Sprintf("or (%s) (%s)", isEnabled("agenticsession"), isEnabled("schedule"))

// watchedRange has the namespaces in which there are Roles, or an empty one for ClusterRoles.
const watchedRange = `ternary (list "") $.Values.namespaces (has "*" $.Values.namespaces)`

const gatewayEnabled = "$.Values.gateway.enabled"

// gatewayTemplates are those of the component gateway.
var gatewayTemplates = []template{
	{name: "gateway", when: gatewayEnabled, sources: []string{"components/gateway/deployment.yaml"}, change: changeGateway},
	{name: "gateway_objects", when: gatewayEnabled, sources: []string{
		"components/gateway/service.yaml", "components/gateway/disruption_budget.yaml", "components/gateway/service_account.yaml",
		"components/gateway/reviews.yaml",
	}},
	{name: "gateway_network_policy", when: "and " + gatewayEnabled + " $.Values.networkPolicy.create", sources: []string{"components/gateway/network_policy.yaml"}},
	{
		name: "rbac_gateway_broker", when: "and " + gatewayEnabled + " $.Values.broker.urlSecret", sources: []string{"components/gateway/broker.yaml"},
		change: changeBrokerRole,
	},
	{
		name: "rbac_gateway", when: gatewayEnabled, namespaces: watchedRange,
		sources: []string{"rbac/gateway/role.yaml", "rbac/gateway/binding.yaml"}, change: changeGatewayRole,
	},
}

// watchedTemplates are the permissions of controllers: a Role in each watched namespace, or a ClusterRole.
func watchedTemplates(controllers []string) (all []template) {
	for _, name := range controllers {
		all = append(all, template{
			name: "rbac_" + name, when: isEnabled(name), namespaces: watchedRange,
			sources: []string{"rbac/controllers/" + name + "/role.yaml", "rbac/controllers/" + name + "/binding.yaml"},
		})
	}
	return all
}

// finalizerTemplates are the permissions to remove finalizers: in all namespaces, or in the watched ones.
func finalizerTemplates(controllers ...string) (all []template) {
	for _, name := range controllers {
		all = append(all, template{
			name: "rbac_finalizers_" + name, when: isEnabled(name), namespaces: `ternary (list "") $.Values.namespaces $.Values.clusterObjects.create`,
			sources: []string{"rbac/finalizers/" + name + "/role.yaml"},
		})
	}
	return all
}

func reportTemplate(directory, when string) template {
	return template{
		name: "rbac_" + directory[strings.LastIndex(directory, "/")+1:], when: when, namespaces: "$.Values.report.namespaces",
		sources: []string{"rbac/" + directory + "/role.yaml", "rbac/" + directory + "/binding.yaml"},
	}
}
