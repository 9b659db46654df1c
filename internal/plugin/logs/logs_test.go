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
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

var testTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// stepPod returns a Pod of a step's Job, created a number of seconds after testTime.
func stepPod(sj *v1alpha1.SequentialJob, step, job, name string, after int, built *testbuilder.PodBuilder) corev1.Pod {
	p := built.Created(testTime.Add(time.Duration(after) * time.Second)).Obj()
	p.Name = job + "-" + name
	p.Labels = map[string]string{v1alpha1.LabelSequentialJobUID: string(sj.UID), v1alpha1.LabelStep: step, batchv1.JobNameLabel: job}
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: job, UID: types.UID("uid-of-" + job), Controller: new(true)}}
	return p
}

func withStepStatus(sj *v1alpha1.SequentialJob, step string, phase v1alpha1.StepPhase, job string) *v1alpha1.SequentialJob {
	sj.Status.Run = 1
	status := v1alpha1.StepStatus{Name: step, Phase: phase, JobAttempt: v1alpha1.JobAttempt{JobName: job}}
	if job != "" {
		status.JobUID = types.UID("uid-of-" + job)
	}
	sj.Status.Steps = append(sj.Status.Steps, status)
	return sj
}

func TestContainerLogsOfAStep(t *testing.T) {
	plain := testbuilder.SequentialJob("etl", "a").Step("load").Obj()
	running := withStepStatus(plain.DeepCopy(), "load", v1alpha1.StepRunning, "j2")
	retried := withStepStatus(testbuilder.SequentialJob("etl", "a").
		Step("load", testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) { o.BackoffLimit = new(int32(3)) })).Obj(), "load", v1alpha1.StepRunning, "j2")
	load := func() *testbuilder.PodBuilder { return testbuilder.Pod("load") }
	first, second := stepPod(plain, "load", "j1", "a", 0, load().Exited(1, "")), stepPod(plain, "load", "j2", "b", 1, load().Running())
	unrelated, restarted := stepPod(plain, "load", "j2", "x", 0, load().Running()), stepPod(plain, "load", "j2", "x", 0, load().Running())
	unrelated.OwnerReferences[0].UID = "another"
	restarted.Status.ContainerStatuses[0].RestartCount = 2
	ofAnotherStep := stepPod(plain, "extract", "j2", "a", 0, testbuilder.Pod("extract").Running())
	neverStarted := stepPod(plain, "load", "j2", "a", 0, load().Waiting("ErrImagePull", ""))
	withInit := stepPod(plain, "load", "j2", "x", 0, load())
	withInit.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name: "wait", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}},
	}}
	logOf := func(pod, label string) containerLog {
		return containerLog{owner: "load", podName: pod, container: "load", label: label}
	}
	beforeRestart, afterRestart, ofInit := logOf("j2-x", "load"), logOf("j2-x", "load"), logOf("j2-x", "load:wait")
	beforeRestart.restartCount, beforeRestart.previous, afterRestart.restartCount, ofInit.container = 1, true, 2, "wait"
	for name, row := range map[string]struct {
		sj   *v1alpha1.SequentialJob
		pods []corev1.Pod
		all  bool
		want []containerLog
	}{
		"only logs of the Job in the status":                  {running, []corev1.Pod{first, second}, false, []containerLog{logOf("j2-b", "load")}},
		"logs of all attempts, the oldest first":              {running, []corev1.Pod{second, first}, true, []containerLog{logOf("j1-a", "load/a"), logOf("j2-b", "load/b")}},
		"a Pod with the labels and another owner is ignored":  {running, []corev1.Pod{unrelated}, false, []containerLog{}},
		"a Pod of another step is ignored":                    {running, []corev1.Pod{ofAnotherStep}, false, []containerLog{}},
		"logs of any Job of the step without a status":        {plain, []corev1.Pod{first}, false, []containerLog{logOf("j1-a", "load")}},
		"a step with retries has the name of the Pod":         {retried, []corev1.Pod{second}, false, []containerLog{logOf("j2-b", "load/b")}},
		"a container that never started has no log":           {running, []corev1.Pod{neverStarted}, false, []containerLog{}},
		"a failed init container has a log":                   {running, []corev1.Pod{withInit}, false, []containerLog{ofInit}},
		"a restarted container has the log of its last start": {running, []corev1.Pod{restarted}, false, []containerLog{afterRestart}},
		"with all attempts, also that of its previous start":  {running, []corev1.Pod{restarted}, true, []containerLog{beforeRestart, afterRestart}},
	} {
		t.Run(name, func(t *testing.T) {
			got := containerLogsOf(row.sj, "load", podsOfStep(row.sj, "load", row.pods, row.all), row.all)
			require.Equal(t, row.want, append([]containerLog{}, got...), cmp.AllowUnexported(containerLog{}))
		})
	}
}

func TestMissingLogReason(t *testing.T) {
	sequence := func() *v1alpha1.SequentialJob { return testbuilder.SequentialJob("etl", "a").Step("load").Obj() }
	pulling := stepPod(sequence(), "load", "j1", "a", 0, testbuilder.Pod("load").Waiting("ErrImagePull", ""))
	for name, row := range map[string]struct {
		sj   *v1alpha1.SequentialJob
		pods []*corev1.Pod
		want string
	}{
		"the step has not started":             {sequence(), nil, ""},
		"the step was skipped":                 {withStepStatus(sequence(), "load", v1alpha1.StepSkipped, ""), nil, ""},
		"the Job was refused":                  {withStepStatus(sequence(), "load", v1alpha1.StepFailed, ""), nil, "step load has no log: no Job was created for it"},
		"the Pod was deleted":                  {withStepStatus(sequence(), "load", v1alpha1.StepSucceeded, "j1"), nil, "step load has no log: its Job j1 no longer has a Pod"},
		"the image cannot be pulled":           {withStepStatus(sequence(), "load", v1alpha1.StepStarting, "j1"), []*corev1.Pod{&pulling}, "step load has no log: no container of Pod j1-a has started: ErrImagePull"},
		"the step has a Pod but no status yet": {sequence(), []*corev1.Pod{&pulling}, "step load has no log: no container of Pod j1-a has started: ErrImagePull"},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, row.want, missingLogReason(row.sj, "load", row.pods)) })
	}
}

// fakePodClient has recorded logs. Each request for a log returns its next recording.
type fakePodClient struct {
	pods     []corev1.Pod
	listErr  error // the error of the next ListPods
	logs     map[string][]recording
	requests []corev1.PodLogOptions
}

// recording is the response to a request for a log: text, and then an error if the connection breaks.
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

type brokenStreamError struct{ error }

func (b brokenStreamError) Read([]byte) (int, error) { return 0, b.error }

func podNotFound(pod string) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, pod)
}

// logLine is a line written a number of seconds after testTime.
func logLine(second int, text string) string {
	return fmt.Sprintf("2026-03-01T12:00:%02d.5Z %s\n", second, text)
}

func finishedSequence() (*v1alpha1.SequentialJob, []corev1.Pod) {
	sj := withStepStatus(testbuilder.SequentialJob("etl", "a").Step("load").Obj(), "load", v1alpha1.StepSucceeded, "j1")
	return sj, []corev1.Pod{stepPod(sj, "load", "j1", "a", 0, testbuilder.Pod("load").Exited(0, ""))}
}

func streamLogs(t *testing.T, cluster *fakePodClient, sj *v1alpha1.SequentialJob, options StreamOptions) (out, errOut string, err error) {
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
		{text: logLine(1, "one") + logLine(2, "two"), error: errors.New("connection reset")}, {text: logLine(2, "two") + logLine(3, "three")},
	}}}
	out, errOut, err := streamLogs(t, cluster, sj, StreamOptions{Follow: true, Tail: new(int64(10))})
	require.True(t, err == nil && out == "load | one\nload | two\nload | three\n", "stdout %q, error %v", out, err)
	require.Contains(t, errOut, "connection reset; retrying")
	first, second := cluster.requests[0], cluster.requests[1]
	require.True(t, first.TailLines != nil && second.TailLines == nil && second.SinceTime != nil, "requests %+v and %+v", first, second)
}

func TestUnavailableLogs(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods/log"}, "j1-a", errors.New("not permitted"))
	unavailable := &apierrors.StatusError{}
	unavailable.ErrStatus.Code, unavailable.ErrStatus.Message = http.StatusBadGateway, "node is unreachable"
	for name, row := range map[string]struct {
		log             []recording
		follow          bool
		wantErr, errOut string
	}{
		"a deleted Pod gives a notice":                      {nil, false, "", "step load has no log: Pod j1-a is deleted\n"},
		"a missing permission is an error":                  {[]recording{{error: forbidden}}, true, "not permitted", ""},
		"an unreachable node is an error":                   {[]recording{{error: unavailable}}, false, "log of Pod j1-a, container load: node is unreachable", ""},
		"with follow, an unreachable node is retried first": {[]recording{{error: unavailable}, {error: unavailable}}, true, "node is unreachable", "log of Pod j1-a: node is unreachable; retrying\n"},
	} {
		t.Run(name, func(t *testing.T) {
			sj, pods := finishedSequence()
			_, errOut, err := streamLogs(t, &fakePodClient{pods: pods, logs: map[string][]recording{"j1-a": row.log}}, sj, StreamOptions{Follow: row.follow})
			got := fmt.Sprint(err)
			require.True(t, (err != nil) == (row.wantErr != "") && (strings.Contains(got, row.wantErr) || err == nil), "error %v, want %q", err, row.wantErr)
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

func (s changeSender[T]) change(object T) { s.objects <- follow.ObjectUpdate[T]{Object: object} }

func (s changeSender[T]) showPod(pod *corev1.Pod) {
	s.pods <- follow.ObjectUpdate[*corev1.Pod]{Object: pod}
}

// followLogs follows logs while send sends changes, and returns what the streamer printed.
func followLogs[T client.Object, S interface {
	Follow(ctx context.Context, object T, isFinished func(T) bool, changes Changes[T]) error
}](
	t *testing.T, newStreamer func(context.Context, PodClient, T, StreamOptions) (S, error), podClient *fakePodClient, object T,
	isFinished func(T) bool, send func(changeSender[T]),
) (out, errOut string, err error) {
	var stdout, stderr bytes.Buffer
	s := changeSender[T]{make(chan follow.ObjectUpdate[T]), make(chan follow.ObjectUpdate[*corev1.Pod]), make(chan error)}
	options := StreamOptions{Follow: true, Retry: time.Millisecond, Container: v1alpha1.RunnerContainer, Out: &stdout, ErrOut: &stderr}
	streamer, err := newStreamer(t.Context(), podClient, object, options)
	require.NoError(t, err)
	done := make(chan error)
	changes := Changes[T]{Objects: s.objects, Pods: s.pods, Errors: s.errs}
	go func() { done <- streamer.Follow(t.Context(), object, isFinished, changes) }()
	send(s)
	err = <-done
	return stdout.String(), stderr.String(), err
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

func TestASequenceIsFollowedUntilItEnds(t *testing.T) {
	type sender = changeSender[*v1alpha1.SequentialJob]
	sj := withStepStatus(testbuilder.SequentialJob("etl", "a").Step("extract").Step("load").Obj(), "extract", v1alpha1.StepRunning, "e")
	extract := stepPod(sj, "extract", "e", "1", 0, testbuilder.Pod("extract").Exited(0, ""))
	load := stepPod(sj, "load", "l", "1", 1, testbuilder.Pod("load").Exited(0, ""))
	isFinished := func(sj *v1alpha1.SequentialJob) bool { return sj.Status.CompletionTime != nil }
	forbidden := errors.New("forbidden")
	for title, row := range map[string]struct {
		pods        []corev1.Pod
		send        func(sender, *fakePodClient)
		out, errOut string
		err         error
	}{
		"its steps are printed in order": {[]corev1.Pod{load, extract}, func(s sender, _ *fakePodClient) {
			s.showPod(&load)
			s.showPod(&extract)
			s.change(atSecondStep(sj, v1alpha1.StepSucceeded))
		}, "extract | one\nload | two\n", "", nil},
		"its Pods are listed when a step finishes": {[]corev1.Pod{extract}, func(s sender, c *fakePodClient) {
			c.listErr = errors.New("the API server is unavailable")
			s.change(atSecondStep(sj, v1alpha1.StepFailed))
		}, "extract | one\n", "listing Pods: the API server is unavailable; retrying\nstep load has no log: its Job l no longer has a Pod\n", nil},
		"it is deleted": {nil, func(s sender, _ *fakePodClient) {
			s.objects <- follow.ObjectUpdate[*v1alpha1.SequentialJob]{Object: sj, Deleted: true}
		}, "", "step extract has no log: its Job e no longer has a Pod\n", nil},
		"a permission is missing": {nil, func(s sender, _ *fakePodClient) { s.errs <- forbidden }, "", "", forbidden},
	} {
		t.Run(title, func(t *testing.T) {
			podClient := &fakePodClient{pods: row.pods, logs: map[string][]recording{"e-1": {{text: logLine(1, "one")}}, "l-1": {{text: logLine(2, "two")}}}}
			out, errOut, err := followLogs(t, NewSequenceStreamer, podClient, sj, isFinished, func(s sender) { row.send(s, podClient) })
			require.True(t, errors.Is(err, row.err) && (err != nil || out == row.out && errOut == row.errOut), "stdout %q, stderr %q, error %v", out, errOut, err)
		})
	}
}

// sessionWithJob returns a session with a current Job, which can be "", and finished Jobs.
func sessionWithJob(job string, finished ...string) *v1alpha1.AgenticSession {
	s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: "talk", Namespace: "a", UID: "u"}}
	s.Status.Attempt.JobName = job
	for _, job := range finished {
		s.Status.Attempts = append(s.Status.Attempts, v1alpha1.SessionAttempt{JobAttempt: v1alpha1.JobAttempt{JobName: job}})
	}
	return s
}

// sessionPod returns the Pod of a session's Job, created a number of minutes after testTime.
func sessionPod(job string, minutes int, builder *testbuilder.PodBuilder) corev1.Pod {
	pod := builder.Obj()
	pod.Name, pod.Namespace = job+"-x", "a"
	pod.Labels = map[string]string{agenticsession.LabelSessionUID: "u"}
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: job, UID: "j", Controller: new(true)}}
	pod.CreationTimestamp = metav1.NewTime(testTime.Add(time.Duration(minutes) * time.Minute))
	return pod
}

func exitedRunner() *testbuilder.PodBuilder {
	return testbuilder.Pod(v1alpha1.RunnerContainer).Exited(0, "")
}

func TestSessionLogs(t *testing.T) {
	first, second := sessionPod("talk-r1-a9", 0, exitedRunner()), sessionPod("talk-r1-a10", 1, exitedRunner())
	unrelated := sessionPod("talk-r1-a11", 2, exitedRunner())
	unrelated.Labels = nil
	starting := sessionPod("talk-r1-a11", 2, testbuilder.Pod(v1alpha1.RunnerContainer).Waiting("ImagePullBackOff", ""))
	for title, row := range map[string]struct {
		session     *v1alpha1.AgenticSession
		pods        []corev1.Pod
		options     StreamOptions
		out, errOut string
	}{
		"logs of the last attempt":               {sessionWithJob("", "talk-r1-a9", "talk-r1-a10"), []corev1.Pod{second, first}, StreamOptions{}, "r1-a10 | two\n", ""},
		"logs of the current attempt":            {sessionWithJob("talk-r1-a10", "talk-r1-a9"), []corev1.Pod{second, first}, StreamOptions{}, "r1-a10 | two\n", ""},
		"logs of all attempts, the oldest first": {sessionWithJob("talk-r1-a10", "talk-r1-a9"), []corev1.Pod{second, first}, StreamOptions{AllAttempts: true}, "r1-a9 | one\nr1-a10 | two\n", ""},
		"an unrelated Pod is ignored":            {sessionWithJob("talk-r1-a11"), []corev1.Pod{unrelated}, StreamOptions{}, "", "attempt r1-a11 has no log: its Job talk-r1-a11 has no Pod\n"},
		"no attempt yet":                         {sessionWithJob(""), nil, StreamOptions{}, "", "no logs yet: no attempt has started\n"},
		"the Pod was deleted":                    {sessionWithJob("", "talk-r1-a9"), nil, StreamOptions{}, "", "attempt r1-a9 has no log: its Job talk-r1-a9 has no Pod\n"},
		"the container does not start": {
			sessionWithJob("talk-r1-a11"), []corev1.Pod{starting}, StreamOptions{}, "", "attempt r1-a11 has no log: container runner of Pod talk-r1-a11-x has not started: ImagePullBackOff\n",
		},
		"a container that does not exist": {
			sessionWithJob("talk-r1-a10"), []corev1.Pod{second}, StreamOptions{Container: "proxy"}, "", "attempt r1-a10 has no log: container proxy of Pod talk-r1-a10-x has not started\n",
		},
	} {
		t.Run(title, func(t *testing.T) {
			var out, errOut bytes.Buffer
			row.options.Out, row.options.ErrOut = &out, &errOut
			podClient := &fakePodClient{pods: row.pods, logs: map[string][]recording{"talk-r1-a9-x": {{text: logLine(1, "one")}}, "talk-r1-a10-x": {{text: logLine(2, "two")}}}}
			if row.options.Container == "" {
				row.options.Container = v1alpha1.RunnerContainer
			}
			streamer, err := NewSessionStreamer(t.Context(), podClient, row.session, row.options)
			require.NoError(t, err)
			require.NoError(t, streamer.PrintCurrent(t.Context(), row.session))
			diff := cmp.Diff(row.out, out.String())
			require.True(t, diff == "" && errOut.String() == row.errOut, "stderr %q, stdout (-want +got):\n%s", errOut.String(), diff)
		})
	}
}

func TestAttemptsAreFollowedUntilTheSessionIsInactive(t *testing.T) {
	earlier, first, second := sessionPod("talk-r1-a1", 0, exitedRunner()), sessionPod("talk-r1-a2", 1, exitedRunner()), sessionPod("talk-r1-a3", 2, exitedRunner())
	podClient := &fakePodClient{pods: []corev1.Pod{earlier, first, second}, logs: map[string][]recording{
		"talk-r1-a1-x": {{text: logLine(1, "never")}}, "talk-r1-a2-x": {{text: logLine(2, "one")}}, "talk-r1-a3-x": {{text: logLine(3, "two")}},
	}}
	isInactive := func(s *v1alpha1.AgenticSession) bool { return s.Status.Attempt.JobName == "" }
	session := sessionWithJob("talk-r1-a2", "talk-r1-a1")
	out, errOut, err := followLogs(t, NewSessionStreamer, podClient, session, isInactive, func(sender changeSender[*v1alpha1.AgenticSession]) {
		sender.showPod(&earlier)
		sender.showPod(&first)
		// The Pod of the next attempt is found only by the last list request.
		sender.change(sessionWithJob("talk-r1-a3", "talk-r1-a1", "talk-r1-a2"))
		sender.change(sessionWithJob("", "talk-r1-a1", "talk-r1-a2", "talk-r1-a3"))
	})
	diff := cmp.Diff("r1-a2 | one\nr1-a3 | two\n", out)
	require.True(t, diff == "" && errOut == "" && err == nil, "stderr %q, error %v, stdout (-want +got):\n%s", errOut, err, diff)
}
