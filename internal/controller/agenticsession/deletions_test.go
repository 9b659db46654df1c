package agenticsession

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
	"github.com/yardmaster/yardmaster/internal/session"
)

func TestDeletionIsMeasuredUntilLastJobAndPodAreDeleted(t *testing.T) {
	metadata := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: "ns", Labels: map[string]string{session.LabelSessionUID: "1"}}
	}
	job, pod := &batchv1.Job{ObjectMeta: metadata("job")}, &corev1.Pod{ObjectMeta: metadata("pod")}
	began := time.Unix(1e9, 0)
	inForeground := new(metav1.NewTime(began.Add(-time.Minute)))
	tests := map[string]struct {
		deleted *metav1.Time
		there   []client.Object
		want    []time.Duration
	}{
		"a Job and its Pod, which go one after the other": {nil, []client.Object{job, pod}, []time.Duration{2 * time.Second}},
		"it never had a Job":                              {nil, nil, nil},
		"it waited for its children, and went after them": {inForeground, nil, []time.Duration{time.Minute}},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			now := testingclock.NewFakePassiveClock(began)
			byUID := func(o client.Object) []string { return []string{o.GetLabels()[session.LabelSessionUID]} }
			children := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(test.there...).
				WithIndex(&batchv1.Job{}, uidIndex, byUID).WithIndex(&corev1.Pod{}, uidIndex, byUID).Build()
			d := newDeletionTracker(children, now)
			var took []time.Duration
			d.observeDuration = func(one time.Duration) { took = append(took, one) }
			d.sessionDeleted(t.Context(), &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{
				Name: "fix", Namespace: "ns", UID: "1", DeletionTimestamp: test.deleted,
			}})
			for i, object := range test.there {
				now.SetTime(began.Add(time.Duration(i+1) * time.Second))
				if err := children.Delete(t.Context(), object.DeepCopyObject().(client.Object)); err != nil {
					t.Fatal(err)
				}
				d.childDeleted(t.Context(), object)
			}
			if !slices.Equal(took, test.want) || len(d.deletedSince) != 0 {
				t.Errorf("took %v, want %v; %d are not forgotten", took, test.want, len(d.deletedSince))
			}
		})
	}
}
