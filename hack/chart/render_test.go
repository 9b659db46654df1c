package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// renderManifest renders a template of one manifest.
func renderManifest(t *testing.T, tmpl template, manifest string) string {
	t.Helper()
	config := t.TempDir()
	tmpl.sources = []string{"manifest.yaml"}
	if err := os.WriteFile(filepath.Join(config, "manifest.yaml"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := tmpl.render(config)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestObjectsAreInTheNamespaceOfTheRelease(t *testing.T) {
	text := renderManifest(t, template{}, "{apiVersion: v1, kind: Service, metadata: {name: a, namespace: yardmaster-system}}")
	if want := "  namespace: {{ $.Release.Namespace }}\n"; !strings.Contains(text, want) {
		t.Errorf("no %q in:\n%s", want, text)
	}
}

func TestClusterRolesBecomeRolesInEachNamespace(t *testing.T) {
	text := renderManifest(t, template{namespaces: "$.Values.namespaces"},
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: a}, roleRef: {kind: ClusterRole, name: a}}")
	for _, want := range []string{
		"{{- range $namespace := $.Values.namespaces }}\n",
		"\nkind: {{ if $namespace }}RoleBinding{{ else }}ClusterRoleBinding{{ end }}\n",
		"\n  {{- with $namespace }}\n  namespace: {{ . }}\n  {{- end }}\n",
		"\n  kind: {{ if $namespace }}Role{{ else }}ClusterRole{{ end }}\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

func TestHelmDoesNotEvaluateWhatPrometheusEvaluates(t *testing.T) {
	text := renderManifest(t, template{}, "{apiVersion: v1, kind: Rule, metadata: {name: a}, summary: 'In {{ $labels.namespace }}.'}")
	if want := "summary: In {{ `{{` }} $labels.namespace {{ `}}` }}.\n"; !strings.Contains(text, want) {
		t.Errorf("no %q in:\n%s", want, text)
	}
}

func TestAValueForAFieldThatTheManifestLacksIsAnError(t *testing.T) {
	o := &object{}
	o.Object = map[string]any{"kind": "Deployment"}
	o.set("$.Values.replicas", "spec", "replicas")
	if _, err := o.render(); err == nil || !strings.Contains(err.Error(), "spec.replicas") {
		t.Errorf("error %v, want one about spec.replicas", err)
	}
}

func TestWebhooksBelongToTheControllersOfTheirKinds(t *testing.T) {
	for webhook, want := range map[string]string{
		"queues.yardmaster.dev": "queue", "policies.yardmaster.dev": "policy", "agenticsessions.yardmaster.dev": "agenticsession",
		"schedules.yardmaster.dev": "schedule",
	} {
		if got := controllerOf(webhook); got != want {
			t.Errorf("%s: %s, want %s", webhook, got, want)
		}
	}
}
