package sequence

import (
	"testing"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

func TestFingerprintIgnoresOnlyTheOwner(t *testing.T) {
	base := testbuilder.SequentialJob("one", "ns").Step("build").Obj()
	tests := map[string]struct {
		change   func(sj *v1alpha1.SequentialJob)
		wantSame bool
	}{
		"another SequentialJob": {
			change:   func(sj *v1alpha1.SequentialJob) { sj.Name, sj.UID, sj.Generation = "two", "other", 7 },
			wantSame: true,
		},
		"another namespace": {change: func(sj *v1alpha1.SequentialJob) { sj.Namespace = "elsewhere" }},
		"another image":     {change: func(sj *v1alpha1.SequentialJob) { sj.Spec.Containers[0].Image = "other" }},
		"a queue label": {change: func(sj *v1alpha1.SequentialJob) {
			sj.Spec.JobMetadata = &v1alpha1.JobMetadata{Labels: map[string]string{"kueue.x-k8s.io/queue-name": "q"}}
		}},
		"a workspace": {change: func(sj *v1alpha1.SequentialJob) { sj.Spec.Workspace = &v1alpha1.Workspace{} }},
	}
	want := JobFingerprint(stepJob(base, &base.Spec.Containers[0], 1, 1))
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			sj := base.DeepCopy()
			test.change(sj)
			if same := JobFingerprint(stepJob(sj, &sj.Spec.Containers[0], 1, 1)) == want; same != test.wantSame {
				t.Errorf("the same fingerprint: %t, want %t", same, test.wantSame)
			}
		})
	}
}
