//go:build e2e

package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// newScheduleOf returns a Schedule that runs a sequence every minute.
func newScheduleOf(t *testing.T, ns, name string, sj *v1alpha1.SequentialJob) *v1alpha1.Schedule {
	t.Helper()
	raw, err := json.Marshal(prepareSequence(ns, sj).Spec)
	requireNoError(t, err)
	s := &v1alpha1.Schedule{}
	s.Name, s.Namespace = name, ns
	s.Spec.Schedule, s.Spec.ConcurrencyPolicy = "* * * * *", v1alpha1.ConcurrencyForbid
	s.Spec.SequentialJob = &v1alpha1.ScheduleTemplate{Spec: runtime.RawExtension{Raw: raw}}
	return s
}

// waitForRun returns the first run of a Schedule once it has ended.
func waitForRun(t *testing.T, s *v1alpha1.Schedule) *v1alpha1.SequentialJob {
	t.Helper()
	var runs v1alpha1.SequentialJobList
	poll.Until(t, "a run of "+s.Name+" to end", func() bool {
		requireNoError(t, cluster.List(t.Context(), &runs, client.InNamespace(s.Namespace), client.MatchingLabels{v1alpha1.LabelSchedule: s.Name}))
		return len(runs.Items) > 0 && runs.Items[0].Status.CompletionTime != nil
	})
	return &runs.Items[0]
}

func testSchedulePermission(t *testing.T) {
	u := newTenant(t, "schedules.yardmaster.dev")
	sj := testbuilder.SequentialJob("reader", "").Step("read", shellScript(`echo "$STOLEN" > /dev/termination-log; exit 1`)).Obj()
	sj.Spec.Containers[0].Env = append(sj.Spec.Containers[0].Env, secretAsVariable())
	s := newScheduleOf(t, tenantNamespace, "reader", sj)
	u.create(s)
	if run := waitForRun(t, s); !strings.Contains(run.Status.Steps[0].Message, secretValue) {
		t.Errorf("the step could not read the Secret: %q", run.Status.Steps[0].Message)
	}
}
