package plugin

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestWideTablesHaveTheConditionReady(t *testing.T) {
	ready := []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Reconciled", Message: "very fine"}}
	queue := natsQueue("orders", func(q *v1alpha1.Queue) { q.Status.Conditions = ready })
	schedule := nightlySchedule(func(s *v1alpha1.Schedule) { s.Status.Conditions = ready })
	for _, kind := range []string{"queue", "schedule"} {
		_, out, _ := runPlugin(t, kind+" list -o wide", queue, schedule)
		if lines := strings.Split(out, "\n"); !strings.HasSuffix(lines[0], "READY   MESSAGE") || !strings.HasSuffix(lines[1], "True    very fine") {
			t.Errorf("table:\n%s", out)
		}
	}
}
