package decision

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
)

func TestEqualContentHasTheSameHashOfTheGivenLength(t *testing.T) {
	hashes := map[string]string{}
	for title, value := range map[string]any{
		"a text": new("a"), "another text": new("b"), "no value": nil, "not in JSON": math.Inf(1), "another value that is not in JSON": math.Inf(-1),
	} {
		hash := ContentHash(value, 10)
		if other, found := hashes[hash]; found || len(hash) != 10 {
			t.Errorf("%s has the hash %q, like %q", title, hash, other)
		}
		hashes[hash] = title
	}
	if hash := ContentHash(new("a"), 10); hashes[hash] != "a text" {
		t.Errorf("another copy has the hash %q, which none of %v is", hash, hashes)
	}
}

// A child is that of its controller. Only a child without a controller, which the garbage collector must not delete, is found by its label.
func TestAChildBelongsToItsControllerOrElseToTheOwnerInItsLabel(t *testing.T) {
	const label = "owner-uid"
	owner := &metav1.ObjectMeta{Name: "mine", UID: "1"}
	controllers := map[string][]metav1.OwnerReference{
		"no controller": nil, "the owner": ControllerReferences("Queue", owner), "another object": ControllerReferences("Queue", &metav1.ObjectMeta{Name: "mine", UID: "2"}),
	}
	for controller, references := range controllers {
		for _, uid := range []string{"", "1", "2"} {
			child := &metav1.ObjectMeta{OwnerReferences: references, Labels: map[string]string{label: uid}}
			want := controller == "the owner" || controller == "no controller" && uid == "1"
			assert.Equal(t, fmt.Sprintf("controlled by %s, with the label %q", controller, uid), want, WasCreatedFor(owner, child, label))
		}
	}
}

func TestAJobHasEndedOnlyWithATerminalConditionThatIsTrue(t *testing.T) {
	for _, kind := range []batchv1.JobConditionType{
		batchv1.JobComplete, batchv1.JobFailed, batchv1.JobSuspended, batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet,
	} {
		for _, status := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown} {
			job := &batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: "Other", Status: corev1.ConditionTrue}, {Type: kind, Status: status}}}}
			got := FindEndCondition(job)
			if ended := (kind == batchv1.JobComplete || kind == batchv1.JobFailed) && status == corev1.ConditionTrue; ended != (got != nil) || got != nil && got.Type != kind {
				t.Errorf("%s is %s: ended with %v", kind, status, got)
			}
		}
	}
}

func TestFlagsOfABucketAreNotExpanded(t *testing.T) {
	for region, want := range map[string]string{"": "us-east-1", "eu-west-1": "eu-west-1"} {
		flags := BucketFlags(&v1alpha1.ArchiveS3{Endpoint: "https://$(HOST)", Bucket: "b", Prefix: "p", Region: region}, "/keys")
		if expected := strings.Fields("--endpoint=https://$$(HOST) --bucket=b --prefix=p --region=" + want + " --credentials=/keys"); !slices.Equal(flags, expected) {
			t.Errorf("flags %q, want %q", flags, expected)
		}
	}
}
