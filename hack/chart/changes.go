package main

import (
	"slices"
	"strings"
)

// watchedNamespaces is the value of YARDMASTER_NAMESPACES: empty for all.
const watchedNamespaces = `has "*" $.Values.namespaces | ternary "" (join "," $.Values.namespaces)`

func changeDeployment(o *object) {
	pod := []string{"spec", "template", "spec"}
	in := func(field string) []string { return append(slices.Clip(pod), field) }
	o.set("$.Values.replicas", "spec", "replicas")
	o.setBlockIf("$.Values.image.pullSecrets", "imagePullSecrets", pod...)
	o.setBlockIf("$.Values.nodeSelector", "nodeSelector", pod...)
	o.setBlockIf("$.Values.tolerations", "tolerations", pod...)
	o.setBlockIf("$.Values.affinity", "affinity", pod...)
	o.addBlock(o.child(pod...), "with $.Values.priorityClassName }}\npriorityClassName: {{ . | quote }}\n{{ end")
	container := o.item("yardmaster", in("containers")...)
	container["image"] = o.expression(`include "yardmaster.image" $`)
	container["imagePullPolicy"] = o.expression("$.Values.image.pullPolicy")
	container["resources"] = o.newBlock("toYaml $.Values.resources")
	variables, _ := container["env"].([]any)
	for _, entry := range variables {
		switch variable, _ := entry.(map[string]any); variable["name"] {
		case "YARDMASTER_NAMESPACES":
			variable["value"] = o.expression(watchedNamespaces + " | quote")
		case "GOMEMLIMIT":
			variable["value"] = o.expression("$.Values.goMemoryLimit")
		}
	}
	// An item of a list cannot be a block, so the last variable has the others after it.
	container["env"] = append(variables, o.newBlock(`include "yardmaster.env" $`))

	certificates, _ := o.item("certs", in("volumes")...)["secret"].(map[string]any)
	certificates["secretName"] = o.expression(`$.Values.certManager.enabled | ternary "yardmaster-webhook-certs" "yardmaster-webhook-ca"`)
	o.addBlock(certificates, "if not $.Values.clusterObjects.create }}\noptional: true\n{{ end")
}

func changeGateway(o *object) {
	pod := []string{"spec", "template", "spec"}
	in := func(field string) []string { return append(slices.Clip(pod), field) }
	o.set("$.Values.gateway.replicas", "spec", "replicas")
	o.setBlockIf("$.Values.image.pullSecrets", "imagePullSecrets", pod...)
	o.setBlockIf("$.Values.nodeSelector", "nodeSelector", pod...)
	o.setBlockIf("$.Values.tolerations", "tolerations", pod...)
	o.setBlockIf("$.Values.affinity", "affinity", pod...)
	container := o.item("gateway", in("containers")...)
	container["image"] = o.expression(`include "yardmaster.image" $`)
	container["imagePullPolicy"] = o.expression("$.Values.image.pullPolicy")
	variables, _ := container["env"].([]any)
	variables = slices.DeleteFunc(variables, func(entry any) bool {
		variable, _ := entry.(map[string]any)
		return variable["name"] == "YARDMASTER_BROKER_URL_SECRET"
	})
	container["env"] = append(variables, o.newBlock(`include "yardmaster.gatewayEnv" $`))
	volume, _ := o.item("certificate", in("volumes")...)["secret"].(map[string]any)
	volume["secretName"] = o.expression("$.Values.gateway.certificateSecret")
}

// changeGatewayRole sets the names of the Secrets that the gateway may read in the namespaces of Queues.
func changeGatewayRole(o *object) {
	if _, isBinding := o.Object["roleRef"]; isBinding {
		return
	}
	for _, rule := range o.items("rules") {
		if resources, _ := rule["resources"].([]any); slices.Contains(resources, any("secrets")) {
			rule["resourceNames"] = o.expression("toJson $.Values.gateway.brokerSecrets")
			rule[conditionKey+o.token("$.Values.gateway.brokerSecrets")] = ""
		}
	}
}

func changeServiceAccount(o *object) {
	o.setBlockIf("$.Values.serviceAccount.annotations", "annotations", "metadata")
}

func changeWebhookNetworkPolicy(o *object) {
	webhook := o.items("spec", "ingress")[0]
	webhook["from"] = []any{o.newBlock(`include "yardmaster.apiServerPeers" $`)}
}

func changeBrokerRole(o *object) {
	if o.GetKind() != "Role" {
		return
	}
	o.items("rules")[0]["resourceNames"] = o.expression(`include "yardmaster.brokerSecrets" $`)
}

// changeWebhooks limits the webhooks to those that the enabled controllers serve, in the watched namespaces.
func changeWebhooks(o *object) {
	prefix := "validate"
	if o.GetKind() == "MutatingWebhookConfiguration" {
		prefix = "mutate"
		o.when = "and $.Values.clusterObjects.create (not $.Values.creatorPolicy.enabled) (" + recordsUsers + ")"
	}
	o.setBlockIf(`include "yardmaster.webhookAnnotations" $ | fromYaml`, "annotations", "metadata")
	for _, webhook := range o.items("webhooks") {
		name, _ := webhook["name"].(string)
		limitToWatchedNamespaces(o, webhook)
		configuration, _ := webhook["clientConfig"].(map[string]any)
		service, _ := configuration["service"].(map[string]any)
		o.addBlock(service, "with $.Values.certManager.enabled }}\npath: /"+prefix+"/"+name+"\n{{ end")
		o.addBlock(service, "with include \"yardmaster.webhookCA\" $ | fromJson }}\npath: /{{ .path }}/"+prefix+"/"+name+"\n{{ end")
		o.addBlock(configuration, "with include \"yardmaster.webhookCA\" $ | fromJson }}\ncaBundle: {{ .certificate }}\n{{ end")
		webhook[conditionKey+o.token(isEnabled(controllerOf(name)))] = ""
	}
}

// controllerOf returns the controller that serves the webhook of a kind, such as queue of queues.yardmaster.dev.
func controllerOf(webhook string) string {
	plural, _, _ := strings.Cut(webhook, ".")
	if singular, found := strings.CutSuffix(plural, "ies"); found {
		return singular + "y"
	}
	return strings.TrimSuffix(plural, "s")
}

func changeAdmissionPolicy(o *object) {
	if spec, _ := o.Object["spec"].(map[string]any); spec["matchConditions"] != nil {
		limitToWatchedNamespaces(o, spec)
	}
}

// limitToWatchedNamespaces writes the watched namespaces into the match condition of a webhook or policy.
func limitToWatchedNamespaces(o *object, matched map[string]any) {
	conditions, _ := matched["matchConditions"].([]any)
	for _, entry := range conditions {
		condition, _ := entry.(map[string]any)
		if expression, _ := condition["expression"].(string); condition["name"] == "in-a-watched-namespace" {
			condition["expression"] = strings.Replace(expression, `""`, `"`+o.expression(watchedNamespaces)+`"`, 1)
		}
	}
}

func changeCertificate(o *object) {
	if o.GetKind() == "Certificate" {
		spec := o.child("spec")
		delete(spec, "issuerRef")
		o.addBlock(spec, "with $.Values.certManager.issuerRef }}\nissuerRef:\n{{ toYaml . | indent 2 }}\n{{ else }}\n"+
			"issuerRef:\n  kind: Issuer\n  name: yardmaster-webhook\n{{ end")
		return
	}
	o.when = "not $.Values.certManager.issuerRef"
}

// addMonitorLabels adds the labels by which a Prometheus selects its monitors and rules.
func addMonitorLabels(o *object) {
	o.setBlock(`include "yardmaster.monitorLabels" $`, "metadata", "labels")
}
