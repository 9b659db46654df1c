package logs

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// changeSender sends changes of an object and its Pods to a streamer.
type changeSender[T client.Object] struct {
	objects chan follow.ObjectUpdate[T]
	pods    chan follow.ObjectUpdate[*corev1.Pod]
	errs    chan error
}

// followWith follows logs while send sends changes. newFollow creates the streamer before the
// first change. It returns what the streamer printed.
func followWith[T client.Object](
	t *testing.T, send func(changeSender[T]), newFollow func(StreamOptions) (func(Changes[T]) error, error),
) (out, errOut string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	s := newChangeSender[T]()
	follow, err := newFollow(StreamOptions{Follow: true, Retry: time.Millisecond, Out: &stdout, ErrOut: &stderr})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- follow(Changes[T]{Objects: s.objects, Pods: s.pods, Errors: s.errs}) }()
	send(s)
	err = <-done
	return stdout.String(), stderr.String(), err
}

func newChangeSender[T client.Object]() changeSender[T] {
	return changeSender[T]{make(chan follow.ObjectUpdate[T]), make(chan follow.ObjectUpdate[*corev1.Pod]), make(chan error)}
}

// followSequence follows a sequence until it has a completion time.
func followSequence(t *testing.T, podClient *fakePodClient, sj *v1alpha1.SequentialJob, send func(changeSender[*v1alpha1.SequentialJob])) (out, errOut string, err error) {
	t.Helper()
	isFinished := func(sj *v1alpha1.SequentialJob) bool { return sj.Status.CompletionTime != nil }
	return followWith(t, send, func(options StreamOptions) (func(Changes[*v1alpha1.SequentialJob]) error, error) {
		streamer, err := NewSequenceStreamer(t.Context(), podClient, sj, options)
		return func(changes Changes[*v1alpha1.SequentialJob]) error {
			return streamer.Follow(t.Context(), sj, isFinished, changes)
		}, err
	})
}

// twoStepSequence returns a sequence that runs the first of two steps, and the Pods of both.
func twoStepSequence() (sj *v1alpha1.SequentialJob, extract, load corev1.Pod) {
	sj = withStepStatus(testbuilder.SequentialJob("etl", "a").Step("extract").Step("load").Obj(), "extract", v1alpha1.StepRunning, "e")
	extract = stepPod(sj, "extract", "e", "1", 0, testbuilder.Pod("extract").Exited(0, ""))
	load = stepPod(sj, "load", "l", "1", 1, testbuilder.Pod("load").Exited(0, ""))
	return sj, extract, load
}

// atSecondStep moves the sequence to its second step. A finished step finishes the run.
func atSecondStep(sj *v1alpha1.SequentialJob, phase v1alpha1.StepPhase) *v1alpha1.SequentialJob {
	sj = sj.DeepCopy()
	sj.Status.Steps[0].Phase = v1alpha1.StepSucceeded
	sj = withStepStatus(sj, "load", phase, "l")
	if isStepFinished(phase) {
		sj.Status.CompletionTime = &metav1.Time{Time: testTime}
	}
	return sj
}

func TestFollowedStepsArePrintedInOrder(t *testing.T) {
	sj, extract, load := twoStepSequence()
	podClient := &fakePodClient{pods: []corev1.Pod{load, extract}, logs: map[string][]recording{
		"e-1": {{text: logLine(1, "one")}}, "l-1": {{text: logLine(2, "two")}},
	}}
	out, errOut, err := followSequence(t, podClient, sj, func(s changeSender[*v1alpha1.SequentialJob]) {
		s.pods <- follow.ObjectUpdate[*corev1.Pod]{Object: &load}
		s.pods <- follow.ObjectUpdate[*corev1.Pod]{Object: &extract}
		s.objects <- follow.ObjectUpdate[*v1alpha1.SequentialJob]{Object: atSecondStep(sj, v1alpha1.StepSucceeded)}
	})
	if diff := cmp.Diff("extract | one\nload | two\n", out); diff != "" || errOut != "" || err != nil {
		t.Errorf("stderr %q, error %v, stdout (-want +got):\n%s", errOut, err, diff)
	}
}

func TestPodsAreListedWhenAStepFinishes(t *testing.T) {
	sj, extract, _ := twoStepSequence()
	podClient := &fakePodClient{pods: []corev1.Pod{extract}, logs: map[string][]recording{"e-1": {{text: logLine(1, "one")}}}}
	out, errOut, err := followSequence(t, podClient, sj, func(s changeSender[*v1alpha1.SequentialJob]) {
		podClient.listErr = errors.New("the API server is unavailable")
		s.objects <- follow.ObjectUpdate[*v1alpha1.SequentialJob]{Object: atSecondStep(sj, v1alpha1.StepFailed)}
	})
	const wantErrOut = "listing Pods: the API server is unavailable; retrying\n" +
		"step load has no log: its Job l no longer has a Pod\n"
	if out != "extract | one\n" || errOut != wantErrOut || err != nil {
		t.Errorf("stdout %q, stderr %q, error %v", out, errOut, err)
	}
}

func TestFollowingEndsWhenTheSequenceIsDeleted(t *testing.T) {
	sj, _, _ := twoStepSequence()
	out, errOut, err := followSequence(t, &fakePodClient{}, sj, func(s changeSender[*v1alpha1.SequentialJob]) {
		s.objects <- follow.ObjectUpdate[*v1alpha1.SequentialJob]{Object: sj, Deleted: true}
	})
	if out != "" || errOut != "step extract has no log: its Job e no longer has a Pod\n" || err != nil {
		t.Errorf("stdout %q, stderr %q, error %v", out, errOut, err)
	}
}

func TestFollowingASequenceEndsWithAPermissionError(t *testing.T) {
	sj, _, _ := twoStepSequence()
	forbidden := errors.New("forbidden")
	if _, _, err := followSequence(t, &fakePodClient{}, sj, func(s changeSender[*v1alpha1.SequentialJob]) { s.errs <- forbidden }); !errors.Is(err, forbidden) {
		t.Errorf("error %v", err)
	}
}
