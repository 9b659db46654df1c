package integration

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// createLogClaim creates the claim of an archive.
func createLogClaim(t *testing.T, ns string) {
	t.Helper()
	mustCreate(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "logs", Namespace: ns}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}})
}

func archivedInClaim(sj *v1alpha1.SequentialJob) *v1alpha1.SequentialJob {
	sj.Spec.Archive = &v1alpha1.SequenceArchive{ServiceAccountName: "logs", Archive: v1alpha1.Archive{ClaimRef: &v1alpha1.LocalReference{Name: "logs"}}}
	return sj
}

func TestFinishedSequenceIsDeletedAfterItsLogsAreArchived(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	amounts := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("1Mi"), corev1.ResourceEphemeralStorage: resource.MustParse("1Mi"),
	}
	quota := newQuota(ns, corev1.ResourceList{"requests.cpu": resource.MustParse("1"), "limits.memory": resource.MustParse("1Gi"), "limits.ephemeral-storage": resource.MustParse("1Gi")})
	mustCreate(t, quota)
	createLogClaim(t, ns)
	sj := archivedInClaim(testbuilder.SequentialJob("archived", "").Step("a").TTLAfterFinished(0).Obj())
	sj.Spec.Template = &v1alpha1.PodTemplate{SecurityProfile: v1alpha1.SecurityRestricted}
	sj.Spec.Template.Spec.Containers = []corev1.Container{{Name: "step", Resources: corev1.ResourceRequirements{Requests: amounts, Limits: amounts}}}
	s := createSequenceIn(t, ns, sj)
	s.succeedStep("a")
	s.waitForPhase(v1alpha1.PhaseCompleted)
	s.waitUntil("the missing ServiceAccount to be reported", func(sj *v1alpha1.SequentialJob) bool {
		archive := sj.Status.Archive
		return archive != nil && archive.CompletionTime == nil && strings.Contains(archive.Message, `serviceaccount "logs" not found`)
	})
	if c := meta.FindStatusCondition(s.sj.Status.Conditions, v1alpha1.ConditionAvailable); c.Status != metav1.ConditionTrue || !s.sj.DeletionTimestamp.IsZero() {
		t.Errorf("the sequence is\n%s", describe(s.sj))
	}
	mustCreate(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "logs", Namespace: ns}})
	s.waitUntilDeleted(s.sj)
}

func TestArchiveThatIsInvalidIsRefused(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	ref := &v1alpha1.LocalReference{Name: "a"}
	for name, row := range map[string]struct {
		archive v1alpha1.SequenceArchive
		want    string
	}{
		"no storage": {v1alpha1.SequenceArchive{ServiceAccountName: "logs"}, "set exactly one of claimRef and s3"},
		"two storages": {
			v1alpha1.SequenceArchive{ServiceAccountName: "logs", Archive: v1alpha1.Archive{
				ClaimRef: ref, S3: &v1alpha1.ArchiveS3{Endpoint: "https://a", Bucket: "abc", SecretRef: v1alpha1.LocalReference{Name: "s"}},
			}}, "set exactly one of claimRef and s3",
		},
		"no ServiceAccount":         {v1alpha1.SequenceArchive{Archive: v1alpha1.Archive{ClaimRef: ref}}, "spec.archive.serviceAccountName: Invalid value"},
		"an invalid ServiceAccount": {v1alpha1.SequenceArchive{ServiceAccountName: "Not ok", Archive: v1alpha1.Archive{ClaimRef: ref}}, `spec.archive.serviceAccountName: Invalid value: "Not ok"`},
		"an invalid endpoint": {
			v1alpha1.SequenceArchive{ServiceAccountName: "logs", Archive: v1alpha1.Archive{S3: &v1alpha1.ArchiveS3{
				Endpoint: "a", Bucket: "abc", SecretRef: v1alpha1.LocalReference{Name: "s"},
			}}}, "spec.archive.s3.endpoint: Invalid value",
		},
	} {
		sj := testbuilder.SequentialJob("invalid", ns).Step("a").Obj()
		sj.Spec.Archive = &row.archive
		if err := cluster.Create(t.Context(), sj); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: want %s, got %v", name, row.want, err)
		}
	}
}
