package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// fakePodClient has recorded logs. Each request for a log returns its next recording.
type fakePodClient struct {
	pods     []corev1.Pod
	listErr  error // the error of the next ListPods
	logs     map[string][]recording
	requests []corev1.PodLogOptions
}

// recording is the response to a request for a log: text, and then an error if the connection
// breaks.
type recording struct {
	text  string
	error error
}

func (r *fakePodClient) ListPods(context.Context) ([]corev1.Pod, error) {
	err := r.listErr
	r.listErr = nil
	return r.pods, err
}

func (r *fakePodClient) GetPod(_ context.Context, name string) (*corev1.Pod, error) {
	for i := range r.pods {
		if r.pods[i].Name == name {
			return &r.pods[i], nil
		}
	}
	return nil, podNotFound(name)
}

func (r *fakePodClient) OpenLog(_ context.Context, pod string, options *corev1.PodLogOptions) (io.ReadCloser, error) {
	r.requests = append(r.requests, *options)
	left := r.logs[pod]
	if len(left) == 0 {
		return nil, podNotFound(pod)
	}
	r.logs[pod] = left[1:]
	if left[0].text == "" && left[0].error != nil {
		return nil, left[0].error
	}
	end := io.Reader(strings.NewReader(""))
	if left[0].error != nil {
		end = brokenStreamError{left[0].error}
	}
	return io.NopCloser(io.MultiReader(strings.NewReader(left[0].text), end)), nil
}

// brokenStreamError ends with an error.
type brokenStreamError struct{ error }

func (b brokenStreamError) Read([]byte) (int, error) { return 0, b.error }

func podNotFound(pod string) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, pod)
}

// logLine is a line written a number of seconds after testTime.
func logLine(second int, text string) string {
	return fmt.Sprintf("2026-03-01T12:00:%02d.5Z %s\n", second, text)
}

// finishedSequence returns a finished sequence of one step, and its Pod.
func finishedSequence() (*v1alpha1.SequentialJob, []corev1.Pod) {
	sj := withStepStatus(testbuilder.SequentialJob("etl", "a").Step("load").Obj(), "load", v1alpha1.StepSucceeded, "j1")
	return sj, []corev1.Pod{stepPod(sj, "load", "j1", "a", 0, testbuilder.Pod("load").Exited(0, ""))}
}

func streamLogs(t *testing.T, cluster *fakePodClient, sj *v1alpha1.SequentialJob, options StreamOptions) (out, errOut string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	options.Out, options.ErrOut, options.Retry = &stdout, &stderr, time.Millisecond
	streamer, err := NewSequenceStreamer(t.Context(), cluster, sj, options)
	require.NoError(t, err)
	if options.Follow {
		err = streamer.Follow(t.Context(), sj, func(*v1alpha1.SequentialJob) bool { return true }, Changes[*v1alpha1.SequentialJob]{})
	} else {
		err = streamer.PrintCurrent(t.Context(), sj)
	}
	return stdout.String(), stderr.String(), err
}

func TestLogLines(t *testing.T) {
	long := strings.Repeat("x", maxLineBytes)
	for name, row := range map[string]struct {
		text    string
		options StreamOptions
		want    string
	}{
		"each line starts with its step":   {logLine(1, "one") + logLine(2, "two"), StreamOptions{}, "load | one\nload | two\n"},
		"timestamps on request":            {logLine(1, "one"), StreamOptions{Timestamps: true}, "load | " + logLine(1, "one")},
		"empty lines are printed":          {logLine(1, ""), StreamOptions{}, "load | \n"},
		"the color of the step":            {logLine(1, "one"), StreamOptions{Style: terminal.Style{ColorEnabled: true}}, "\x1b[36mload |\x1b[0m one\n"},
		"lines with the same timestamp":    {logLine(1, "one") + logLine(1, "two"), StreamOptions{}, "load | one\nload | two\n"},
		"a last line without a newline":    {"2026-03-01T12:00:01Z one", StreamOptions{}, "load | one\n"},
		"a line without a timestamp":       {"unable to retrieve container logs\n", StreamOptions{}, "load | unable to retrieve container logs\n"},
		"a long line is one line":          {"2026-03-01T12:00:01Z " + long[:200_009] + "\n", StreamOptions{}, "load | " + long[:200_009] + "\n"},
		"a very long line in parts":        {"2026-03-01T12:00:01Z " + long + "\n", StreamOptions{}, "load | " + long[21:] + "\nload +| " + long[:21] + "\n"},
		"a very long line with an end":     {"2026-03-01T12:00:01Z " + long[21:], StreamOptions{}, "load | " + long[21:] + "\n"},
		"a timestamp in another time zone": {"2026-03-01T14:00:01+02:00 one\n", StreamOptions{}, "load | one\n"},
	} {
		t.Run(name, func(t *testing.T) {
			sj, pods := finishedSequence()
			out, errOut, err := streamLogs(t, &fakePodClient{pods: pods, logs: map[string][]recording{"j1-a": {{text: row.text}}}}, sj, row.options)
			require.True(t, err == nil && errOut == "", "error %v, stderr %q", err, errOut)
			require.Equal(t, row.want, out)
		})
	}
}

func TestFollowedLogContinuesAfterABrokenConnection(t *testing.T) {
	sj, pods := finishedSequence()
	cluster := &fakePodClient{pods: pods, logs: map[string][]recording{"j1-a": {
		{text: logLine(1, "one") + logLine(2, "two"), error: errors.New("connection reset")},
		{text: logLine(2, "two") + logLine(3, "three")},
	}}}
	out, errOut, err := streamLogs(t, cluster, sj, StreamOptions{Follow: true, Tail: new(int64(10))})
	require.True(t, err == nil && out == "load | one\nload | two\nload | three\n", "stdout %q, error %v", out, err)
	require.Contains(t, errOut, "connection reset; retrying")
	if first, second := cluster.requests[0], cluster.requests[1]; first.TailLines == nil || second.TailLines != nil || second.SinceTime == nil {
		t.Errorf("requests %+v and %+v", first, second)
	}
}

func TestUnavailableLogs(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods/log"}, "j1-a", errors.New("not permitted"))
	unavailable := &apierrors.StatusError{}
	unavailable.ErrStatus.Code, unavailable.ErrStatus.Message = http.StatusBadGateway, "node is unreachable"
	for name, row := range map[string]struct {
		log     []recording
		follow  bool
		wantErr string
		errOut  string
	}{
		"a deleted Pod gives a notice":                      {nil, false, "", "step load has no log: Pod j1-a is deleted\n"},
		"a missing permission is an error":                  {[]recording{{error: forbidden}}, true, "not permitted", ""},
		"an unreachable node is an error":                   {[]recording{{error: unavailable}}, false, "log of Pod j1-a, container load: node is unreachable", ""},
		"with follow, an unreachable node is retried first": {[]recording{{error: unavailable}, {error: unavailable}}, true, "node is unreachable", "log of Pod j1-a: node is unreachable; retrying\n"},
	} {
		t.Run(name, func(t *testing.T) {
			sj, pods := finishedSequence()
			_, errOut, err := streamLogs(t, &fakePodClient{pods: pods, logs: map[string][]recording{"j1-a": row.log}}, sj, StreamOptions{Follow: row.follow})
			if got := fmt.Sprint(err); (err != nil) != (row.wantErr != "") || !strings.Contains(got, row.wantErr) && err != nil {
				t.Errorf("error %v, want %q", err, row.wantErr)
			}
			require.Equal(t, row.errOut, errOut)
		})
	}
}

func TestNoticeWithoutAnyLog(t *testing.T) {
	sj := testbuilder.SequentialJob("etl", "a").Step("load").Obj()
	out, errOut, err := streamLogs(t, &fakePodClient{}, sj, StreamOptions{})
	require.True(t, out == "" && errOut == "no logs yet: no step has started\n" && err == nil, "stdout %q, stderr %q, error %v", out, errOut, err)
}

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
	require.NoError(t, err)
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
	require.True(t, out == "extract | one\n" && errOut == wantErrOut && err == nil, "stdout %q, stderr %q, error %v", out, errOut, err)
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
