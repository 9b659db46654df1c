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
		"queue list -o name":                "queue.yardmaster.dev/billing\nqueue.yardmaster.dev/orders\n",
		"queue get orders -o name":          "queue.yardmaster.dev/orders\n",
		"queue list -o name -l team=orders": "queue.yardmaster.dev/orders\n",
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

func TestWideTablesOfSchedulesHaveTheConditionReady(t *testing.T) {
	_, out, _ := runPlugin(t, "schedule list -o wide", nightlySchedule(func(s *v1alpha1.Schedule) { s.Status.Conditions[0].Message = "the next run is tomorrow" }))
	if !strings.Contains(out, "True    the next run is tomorrow") {
		t.Errorf("table:\n%s", out)
	}
}

func TestInvalidOutputIsAnErrorBeforeAnythingIsRead(t *testing.T) {
	for args, want := range map[string]string{
		"queue list -o xml":            `error: invalid --output "xml": must be one of table, wide, json, yaml, name`,
		"queue list orders -A":         `error: a NAME cannot be combined with --all-namespaces or --selector`,
		"report -o text":               `error: invalid --output "text": must be one of table, wide, name, json, yaml`,
		"report --fail-on healthy":     `error: invalid --fail-on "healthy": must be one of zombie, suspicious, never`,
		"queue dead list orders -o no": `error: invalid --output "no": must be one of table, json, yaml`,
	} {
		t.Run(args, func(t *testing.T) {
			code, out, errOut := runPlugin(t, args, outputTestQueues()...)
			if code != exitError || out != "" || !strings.HasPrefix(errOut, want) || strings.Count(errOut, "\n") != 1 {
				t.Errorf("exit code %d, stdout %q, stderr %q, want %q", code, out, errOut, want)
			}
		})
	}
}
