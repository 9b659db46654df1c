package plugin

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// outputTestQueues are two Queues, of which the first by name is the newer one.
func outputTestQueues() []client.Object {
	queue := func(name string, age time.Duration, message string) *v1alpha1.Queue {
		q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, CreationTimestamp: metav1.NewTime(testTime.Add(-age)), Labels: map[string]string{"team": name}}}
		q.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Reconciled", Message: message}}
		return q
	}
	return []client.Object{queue("billing", time.Hour, "fine"), queue("orders", 48*time.Hour, "very fine")}
}

func TestListOutputFormats(t *testing.T) {
	for args, want := range map[string]string{
		"queue list -o name":                                                                             "queue.yardmaster.dev/billing\nqueue.yardmaster.dev/orders\n",
		"queue get orders -o name":                                                                       "queue.yardmaster.dev/orders\n",
		"queue list -o name -l team=orders":                                                              "queue.yardmaster.dev/orders\n",
		"queue list -o name --sort-by .metadata.name":                                                    "queue.yardmaster.dev/billing\nqueue.yardmaster.dev/orders\n",
		"queue list -o jsonpath={.items[*].metadata.name}":                                               "billing orders\n",
		"queue get orders -o jsonpath={.metadata.name}":                                                  "orders\n",
		"queue list -o jsonpath={.items[*].spec.nothing}":                                                "\n",
		"queue list -o name --sort-by={.metadata.creationTimestamp}":                                     "queue.yardmaster.dev/orders\nqueue.yardmaster.dev/billing\n",
		"queue list -o custom-columns=NAME:.metadata.name,NONE:.spec.nothing":                            "NAME      NONE\nbilling   <none>\norders    <none>\n",
		"queue list -o custom-columns=NAME:metadata.name --no-headers":                                   "billing\norders\n",
		"queue list -o custom-columns=NAME:.metadata.name,R:.status.conditions[0].reason -l team=orders": "NAME     R\norders   Reconciled\n",
	} {
		t.Run(args, func(t *testing.T) {
			code, out, errOut := runPlugin(t, args, outputTestQueues()...)
			if out != want || code != exitSuccess || errOut != "" {
				t.Errorf("exit code %d, stderr %q, stdout %q, want %q", code, errOut, out, want)
			}
		})
	}
}

func TestWideTablesHaveTheConditionReady(t *testing.T) {
	_, out, _ := runPlugin(t, "queue list -o wide", outputTestQueues()...)
	lines := strings.Split(out, "\n")
	if !strings.HasSuffix(lines[0], "READY   MESSAGE") || !strings.HasSuffix(lines[2], "True    very fine") {
		t.Errorf("table:\n%s", out)
	}
}

func TestTablesWithoutHeaders(t *testing.T) {
	for _, args := range []string{"queue list --no-headers", "queue list -o wide --no-headers"} {
		_, out, _ := runPlugin(t, args, outputTestQueues()...)
		if strings.Contains(out, "NAME") || strings.Count(out, "\n") != 2 {
			t.Errorf("%s:\n%s", args, out)
		}
	}
	_, out, _ := runPlugin(t, "report --no-headers", staleTestJobs...)
	if strings.Contains(out, "NAMESPACE") || strings.Contains(out, "Jobs:") || strings.Count(out, "\n") != 2 {
		t.Errorf("report:\n%s", out)
	}
}

func TestInvalidOutputIsAnErrorBeforeAnythingIsRead(t *testing.T) {
	for args, want := range map[string]string{
		"queue list -o xml":                          `error: invalid --output "xml": must be one of table, wide, json, yaml, name, jsonpath=… or custom-columns=…`,
		"queue list -o jsonpath":                     `error: invalid --output "jsonpath": the expression is missing, such as jsonpath='{.items[*].metadata.name}'`,
		"queue list -o custom-columns=":              `error: invalid --output "custom-columns=": the expression is missing, such as custom-columns=NAME:.metadata.name`,
		"queue list -o custom-columns=NAME":          `error: invalid column "NAME": must be HEADER:PATH, such as NAME:.metadata.name`,
		"queue list -w -o json":                      `error: --watch requires --output table or wide; use kubectl get --watch for other formats`,
		"queue list orders -A":                       `error: a NAME cannot be combined with --all-namespaces or --selector`,
		"queue list --sort-by {.metadata.name":       "",
		"queue list -o jsonpath={.items[0.metadata}": "error: invalid JSONPath",
	} {
		t.Run(args, func(t *testing.T) {
			code, out, errOut := runPlugin(t, args, outputTestQueues()...)
			if want == "" {
				if code != exitSuccess {
					t.Errorf("exit code %d, stderr %q", code, errOut)
				}
				return
			}
			if code != exitError || out != "" || !strings.HasPrefix(errOut, want) || strings.Count(errOut, "\n") != 1 {
				t.Errorf("exit code %d, stdout %q, stderr %q, want %q", code, out, errOut, want)
			}
		})
	}
}
