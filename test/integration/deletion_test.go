package integration

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

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
	mustDelete(t, s.sj)
	s.waitUntilDeleted(s.sj)
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(unrelated), unrelated); err != nil || !unrelated.DeletionTimestamp.IsZero() {
		t.Errorf("the unrelated Job was deleted: %v", err)
	}
}

// The cache of an operator that has just become the leader can show a Job as running that has ended. Deleting it would
// delete its log.
func TestAJobThatChangedSinceItWasReadIsNotDeleted(t *testing.T) {
	t.Parallel()
	job := newSuspendedJob(namespace(t))
	job.Name = "changed"
	mustCreate(t, job)
	read := job.DeepCopy()
	mustPatch(t, job, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"a":"b"}}}`)))
	if err := kube.DeleteVersion(t.Context(), cluster, read, metav1.DeletePropagationForeground); !apierrors.IsConflict(err) {
		t.Errorf("error %v, want a conflict", err)
	}
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(job), job); err != nil || job.DeletionTimestamp != nil {
		t.Errorf("the Job: %v, deleted at %v", err, job.DeletionTimestamp)
	}
	require.NoError(t, kube.DeleteVersion(t.Context(), cluster, job, metav1.DeletePropagationForeground))
	poll.Until(t, "the Job to be deleted", func() bool {
		return apierrors.IsNotFound(cluster.Get(t.Context(), client.ObjectKeyFromObject(job), &batchv1.Job{}))
	})
}
