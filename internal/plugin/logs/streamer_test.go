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
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

// recorded is a cluster with recorded logs. Each request for one is answered by its next
// recording.
type recorded struct {
	pods     []corev1.Pod
	away     error // what the next list of Pods fails with
	logs     map[string][]recording
	requests []corev1.PodLogOptions
}

// recording is what a request for a log brings: text, and then an error if it breaks off.
type recording struct {
	text  string
	error error
}

func (r *recorded) ListPods(context.Context) ([]corev1.Pod, error) {
	err := r.away
	r.away = nil
	return r.pods, err
}

func (r *recorded) GetPod(_ context.Context, name string) (*corev1.Pod, error) {
	for i := range r.pods {
		if r.pods[i].Name == name {
			return &r.pods[i], nil
		}
	}
	return nil, notFound(name)
}

func (r *recorded) OpenLog(_ context.Context, pod string, options *corev1.PodLogOptions) (io.ReadCloser, error) {
	r.requests = append(r.requests, *options)
	left := r.logs[pod]
	if len(left) == 0 {
		return nil, notFound(pod)
	}
	r.logs[pod] = left[1:]
	if left[0].text == "" && left[0].error != nil {
		return nil, left[0].error
	}
	end := io.Reader(strings.NewReader(""))
	if left[0].error != nil {
		end = broken{left[0].error}
	}
	return io.NopCloser(io.MultiReader(strings.NewReader(left[0].text), end)), nil
}

// broken is a stream that ends with an error.
type broken struct{ error }

func (b broken) Read([]byte) (int, error) { return 0, b.error }

func notFound(pod string) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, pod)
}

// line is a line of a log, written so many seconds after noon.
func line(second int, text string) string {
	return fmt.Sprintf("2026-03-01T12:00:%02d.5Z %s\n", second, text)
}

// finished is a sequence of one step that has ended, with its Pod.
func finished() (*v1alpha1.SequentialJob, []corev1.Pod) {
	sj := at(testbuilder.SequentialJob("etl", "a").Step("load").Obj(), "load", v1alpha1.StepSucceeded, "j1")
	return sj, []corev1.Pod{pod(sj, "load", "j1", "a", 0, testbuilder.Pod("load").Exited(0, ""))}
}

func tell(t *testing.T, cluster *recorded, sj *v1alpha1.SequentialJob, options StreamOptions) (out, errOut string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	options.Out, options.ErrOut, options.Retry = &stdout, &stderr, time.Millisecond
	teller, err := NewStreamer(t.Context(), cluster, sj, options)
	if err != nil {
		t.Fatal(err)
	}
	if options.Follow {
		err = teller.Follow(t.Context(), sj, func(*v1alpha1.SequentialJob) bool { return true }, World{})
	} else {
		err = teller.PrintCurrent(t.Context(), sj)
	}
	return stdout.String(), stderr.String(), err
}

func TestALogIsTold(t *testing.T) {
	long := strings.Repeat("x", maxLineBytes)
	for name, row := range map[string]struct {
		text    string
		options StreamOptions
		want    string
	}{
		"each line with its step":           {line(1, "one") + line(2, "two"), StreamOptions{}, "load | one\nload | two\n"},
		"with the times, if asked for":      {line(1, "one"), StreamOptions{Timestamps: true}, "load | " + line(1, "one")},
		"an empty line is one too":          {line(1, ""), StreamOptions{}, "load | \n"},
		"in the step's colour":              {line(1, "one"), StreamOptions{Style: terminal.Style{ColorEnabled: true}}, "\x1b[36mload |\x1b[0m one\n"},
		"lines of the same instant":         {line(1, "one") + line(1, "two"), StreamOptions{}, "load | one\nload | two\n"},
		"a last line without its end":       {"2026-03-01T12:00:01Z one", StreamOptions{}, "load | one\n"},
		"a line without a time, as it is":   {"unable to retrieve container logs\n", StreamOptions{}, "load | unable to retrieve container logs\n"},
		"a very long line, in parts":        {"2026-03-01T12:00:01Z " + long + "\n", StreamOptions{}, "load | " + long[21:] + "\nload | " + long[:21] + "\n"},
		"what was written by another clock": {"2026-03-01T14:00:01+02:00 one\n", StreamOptions{}, "load | one\n"},
	} {
		t.Run(name, func(t *testing.T) {
			sj, pods := finished()
			out, errOut, err := tell(t, &recorded{pods: pods, logs: map[string][]recording{"j1-a": {{text: row.text}}}}, sj, row.options)
			if err != nil || errOut != "" {
				t.Errorf("error %v, said %q", err, errOut)
			}
			if diff := cmp.Diff(row.want, out); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAFollowedLogThatBreaksOffIsTakenUpWhereItWas(t *testing.T) {
	sj, pods := finished()
	cluster := &recorded{pods: pods, logs: map[string][]recording{"j1-a": {
		{text: line(1, "one") + line(2, "two"), error: errors.New("connection reset")},
		{text: line(2, "two") + line(3, "three")},
	}}}
	out, errOut, err := tell(t, cluster, sj, StreamOptions{Follow: true, Tail: new(int64(10))})
	if err != nil || out != "load | one\nload | two\nload | three\n" {
		t.Errorf("told %q, error %v", out, err)
	}
	if !strings.Contains(errOut, "connection reset; trying again") {
		t.Errorf("said %q", errOut)
	}
	if first, second := cluster.requests[0], cluster.requests[1]; first.TailLines == nil || second.TailLines != nil || second.SinceTime == nil {
		t.Errorf("asked for %+v and then %+v", first, second)
	}
}

func TestWhatBecomesOfALogThatCannotBeHad(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods/log"}, "j1-a", errors.New("no right"))
	unavailable := &apierrors.StatusError{}
	unavailable.ErrStatus.Code, unavailable.ErrStatus.Message = http.StatusBadGateway, "node is away"
	for name, row := range map[string]struct {
		log     []recording
		follow  bool
		wantErr string
		said    string
	}{
		"the Pod has just gone: that is said":     {nil, false, "", "step load has no log of Pod j1-a any more: it is gone\n"},
		"no right to it: an error":                {[]recording{{error: forbidden}}, true, "no right", ""},
		"the node is away: an error":              {[]recording{{error: unavailable}}, false, "log of Pod j1-a, container load: node is away", ""},
		"... and, followed, only after a 2nd try": {[]recording{{error: unavailable}, {error: unavailable}}, true, "node is away", "log of Pod j1-a: node is away; trying again\n"},
	} {
		t.Run(name, func(t *testing.T) {
			sj, pods := finished()
			_, errOut, err := tell(t, &recorded{pods: pods, logs: map[string][]recording{"j1-a": row.log}}, sj, StreamOptions{Follow: row.follow})
			if got := fmt.Sprint(err); (err != nil) != (row.wantErr != "") || !strings.Contains(got, row.wantErr) && err != nil {
				t.Errorf("error %v, want %q", err, row.wantErr)
			}
			if errOut != row.said {
				t.Errorf("said %q, want %q", errOut, row.said)
			}
		})
	}
}

func TestWithoutAnyLogThatIsSaid(t *testing.T) {
	sj := testbuilder.SequentialJob("etl", "a").Step("load").Obj()
	out, errOut, err := tell(t, &recorded{}, sj, StreamOptions{})
	if out != "" || errOut != "there are no logs yet: no step has begun\n" || err != nil {
		t.Errorf("told %q, said %q, error %v", out, errOut, err)
	}
}
