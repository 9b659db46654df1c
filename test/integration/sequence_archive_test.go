package integration

import (
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

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
