package integration

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func (s *sequenceTest) deleteSequence(options ...client.DeleteOption) {
	s.t.Helper()
	mustDelete(s.t, s.sj, options...)
}

// Jobs are identified by their controller, not by labels.
func TestJobsOfOthersWithTheOperatorsLabelsAreKept(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("labels", "").Step("a").Obj())
	mine := s.waitForJob("a")
	unrelated := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "unrelated", Namespace: mine.Namespace, Labels: mine.Labels}}
	unrelated.Spec.Template = corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "a", Image: "registry.example/a:1"}},
	}}
	unrelated.Spec.Template.Annotations = map[string]string{simDuration: "1h"}
	mustCreate(t, unrelated)
	s.deleteSequence()
	s.waitUntilDeleted(s.sj)
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(unrelated), unrelated); err != nil || !unrelated.DeletionTimestamp.IsZero() {
		t.Errorf("the unrelated Job was deleted: %v", err)
	}
}
