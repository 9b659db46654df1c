package sequentialjob

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestFingerprintDiffersOnlyByWhatAdmissionSees(t *testing.T) {
	base := testbuilder.SequentialJob("one", "ns").Step("build").Step("test").Obj()
	tests := map[string]struct {
		change                    func(sj *v1alpha1.SequentialJob)
		step                      int
		sameContent, sameMetadata bool
	}{
		"another SequentialJob": {
			change:      func(sj *v1alpha1.SequentialJob) { sj.Name, sj.UID, sj.Generation = "two", "other", 7 },
			sameContent: true, sameMetadata: true,
		},
		"the run of a Schedule": {
			change: func(sj *v1alpha1.SequentialJob) {
				sj.OwnerReferences = decision.ControllerReferences("Schedule", &v1alpha1.Schedule{ObjectMeta: metav1.ObjectMeta{Name: "nightly"}})
			},
			sameContent: true, sameMetadata: true,
		},
		"another step":      {step: 1, sameMetadata: true},
		"another namespace": {change: func(sj *v1alpha1.SequentialJob) { sj.Namespace = "elsewhere" }},
		"another image": {
			change: func(sj *v1alpha1.SequentialJob) { sj.Spec.Containers[0].Image = "other" }, sameMetadata: true,
		},
		"other options": {
			change:       func(sj *v1alpha1.SequentialJob) { sj.Spec.Containers[0].Step = &v1alpha1.StepOptions{Outputs: true} },
			sameMetadata: true,
		},
		"a label of Jobs": {
			change: func(sj *v1alpha1.SequentialJob) {
				sj.Spec.JobMetadata = &v1alpha1.ObjectMetadata{Labels: map[string]string{"kueue.x-k8s.io/queue-name": "q"}}
			},
			sameContent: true,
		},
		"a label of Pods": {
			change: func(sj *v1alpha1.SequentialJob) {
				sj.Spec.Template = &v1alpha1.PodTemplate{}
				sj.Spec.Template.Labels = map[string]string{"team": "a"}
			},
			sameContent: true,
		},
		"a label of the application": {
			change:      func(sj *v1alpha1.SequentialJob) { sj.Labels = map[string]string{labelAppName: "shop"} },
			sameContent: true,
		},
		"a workspace": {change: func(sj *v1alpha1.SequentialJob) { sj.Spec.Workspace = &v1alpha1.Workspace{} }, sameMetadata: true},
	}
	want := FingerprintOf(stepJob(base, &base.Spec.Containers[0], 1, 1))
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			sj := base.DeepCopy()
			if test.change != nil {
				test.change(sj)
			}
			got := FingerprintOf(stepJob(sj, &sj.Spec.Containers[test.step], 1, 1))
			if (got.Content == want.Content) != test.sameContent || (got.Metadata == want.Metadata) != test.sameMetadata {
				t.Errorf("the same content: %t, want %t; the same metadata: %t, want %t",
					got.Content == want.Content, test.sameContent, got.Metadata == want.Metadata, test.sameMetadata)
			}
		})
	}
}
