package controller

import (
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
)

func TestDeletionIsMeasuredUntilLastJobAndPodAreDeleted(t *testing.T) {
	metadata := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: "ns", Labels: map[string]string{agenticsession.LabelSessionUID: "1"}}
	}
	job, pod := &batchv1.Job{ObjectMeta: metadata("job")}, &corev1.Pod{ObjectMeta: metadata("pod")}
	deletionTime := time.Unix(1e9, 0)
	inForeground := new(metav1.NewTime(deletionTime.Add(-time.Minute)))
	tests := map[string]struct {
		deleted  *metav1.Time
		existing []client.Object
		want     []time.Duration
	}{
		"a Job and its Pod are deleted one after the other": {nil, []client.Object{job, pod}, []time.Duration{2 * time.Second}},
		"a session without a Job":                           {nil, nil, nil},
		"a session deleted in the foreground":               {inForeground, nil, []time.Duration{time.Minute}},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			now := testingclock.NewFakePassiveClock(deletionTime)
			byUID := func(o client.Object) []string { return []string{o.GetLabels()[agenticsession.LabelSessionUID]} }
			children := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(test.existing...).
				WithIndex(&batchv1.Job{}, uidIndex, byUID).WithIndex(&corev1.Pod{}, uidIndex, byUID).Build()
			d := newDeletionTracker(children, now)
			var durations []time.Duration
			d.observeDuration = func(duration time.Duration) { durations = append(durations, duration) }
			d.sessionDeleted(t.Context(), &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{
				Name: "fix", Namespace: "ns", UID: "1", DeletionTimestamp: test.deleted,
			}})
			for i, object := range test.existing {
				now.SetTime(deletionTime.Add(time.Duration(i+1) * time.Second))
				if err := children.Delete(t.Context(), object.DeepCopyObject().(client.Object)); err != nil {
					t.Fatal(err)
				}
				d.childDeleted(t.Context(), object)
			}
			if !slices.Equal(durations, test.want) || len(d.deletedSince) != 0 {
				t.Errorf("measured %v, want %v; %d sessions are still tracked", durations, test.want, len(d.deletedSince))
			}
		})
	}
}
