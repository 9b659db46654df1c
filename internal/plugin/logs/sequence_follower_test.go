package logs

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

// world is one in which a sequence and its Pods change as a test tells.
type world struct {
	sequentialJobs chan follow.ObjectUpdate[*v1alpha1.SequentialJob]
	pods           chan follow.ObjectUpdate[*corev1.Pod]
	trouble        chan error
}

func hasEnded(sj *v1alpha1.SequentialJob) bool { return sj.Status.CompletionTime != nil }

// followed is what a follower of the sequence tells and says while the story goes on.
func followed(t *testing.T, cluster *recorded, sj *v1alpha1.SequentialJob, story func(world)) (out, errOut string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	w := world{make(chan follow.ObjectUpdate[*v1alpha1.SequentialJob]), make(chan follow.ObjectUpdate[*corev1.Pod]), make(chan error)}
	teller, err := NewStreamer(t.Context(), cluster, sj, StreamOptions{Follow: true, Retry: time.Millisecond, Out: &stdout, ErrOut: &stderr})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		done <- teller.Follow(t.Context(), sj, hasEnded, World{SequentialJobs: w.sequentialJobs, Pods: w.pods, Trouble: w.trouble})
	}()
	story(w)
	select {
	case err = <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("it does not end")
	}
	return stdout.String(), stderr.String(), err
}

// etl is a sequence of two steps at the first, and the Pods that each comes to have.
func etl() (sj *v1alpha1.SequentialJob, extract, load corev1.Pod) {
	sj = at(testbuilder.SequentialJob("etl", "a").Step("extract").Step("load").Obj(), "extract", v1alpha1.StepRunning, "e")
	extract = pod(sj, "extract", "e", "1", 0, testbuilder.Pod("extract").Exited(0, ""))
	load = pod(sj, "load", "l", "1", 1, testbuilder.Pod("load").Exited(0, ""))
	return sj, extract, load
}

// atLoad is the sequence at its second step, over when it has ended.
func atLoad(sj *v1alpha1.SequentialJob, phase v1alpha1.StepPhase) *v1alpha1.SequentialJob {
	sj = sj.DeepCopy()
	sj.Status.Steps[0].Phase = v1alpha1.StepSucceeded
	sj = at(sj, "load", phase, "l")
	if isStepFinished(phase) {
		sj.Status.CompletionTime = &metav1.Time{Time: noon}
	}
	return sj
}

func TestFollowedStepsAreToldInTheirOrderWhateverIsSeenFirst(t *testing.T) {
	sj, extract, load := etl()
	cluster := &recorded{pods: []corev1.Pod{load, extract}, logs: map[string][]recording{
		"e-1": {{text: line(1, "one")}}, "l-1": {{text: line(2, "two")}},
	}}
	out, errOut, err := followed(t, cluster, sj, func(w world) {
		w.pods <- follow.ObjectUpdate[*corev1.Pod]{Object: &load}
		w.pods <- follow.ObjectUpdate[*corev1.Pod]{Object: &extract}
		w.sequentialJobs <- follow.ObjectUpdate[*v1alpha1.SequentialJob]{Object: atLoad(sj, v1alpha1.StepSucceeded)}
	})
	if diff := cmp.Diff("extract | one\nload | two\n", out); diff != "" || errOut != "" || err != nil {
		t.Errorf("said %q, error %v, told (-want +got):\n%s", errOut, err, diff)
	}
}

func TestAPodThatWasNeverSeenIsAskedForWhenItsStepIsOver(t *testing.T) {
	sj, extract, _ := etl()
	cluster := &recorded{pods: []corev1.Pod{extract}, logs: map[string][]recording{"e-1": {{text: line(1, "one")}}}}
	out, errOut, err := followed(t, cluster, sj, func(w world) {
		cluster.away = errors.New("the API server is away")
		w.sequentialJobs <- follow.ObjectUpdate[*v1alpha1.SequentialJob]{Object: atLoad(sj, v1alpha1.StepFailed)}
	})
	const said = "listing Pods: the API server is away; trying again\n" +
		"step load has no log any more: there is no Pod of its Job l\n"
	if out != "extract | one\n" || errOut != said || err != nil {
		t.Errorf("told %q, said %q, error %v", out, errOut, err)
	}
}

func TestFollowingEndsWithASequenceThatIsDeleted(t *testing.T) {
	sj, _, _ := etl()
	out, errOut, err := followed(t, &recorded{}, sj, func(w world) {
		w.sequentialJobs <- follow.ObjectUpdate[*v1alpha1.SequentialJob]{Object: sj, Deleted: true}
	})
	if out != "" || errOut != "step extract has no log any more: there is no Pod of its Job e\n" || err != nil {
		t.Errorf("told %q, said %q, error %v", out, errOut, err)
	}
}

func TestFollowingEndsWithTroubleThatDoesNotPass(t *testing.T) {
	sj, _, _ := etl()
	forbidden := errors.New("forbidden")
	if _, _, err := followed(t, &recorded{}, sj, func(w world) { w.trouble <- forbidden }); !errors.Is(err, forbidden) {
		t.Errorf("error %v", err)
	}
}
