package logs

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

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
			if diff := cmp.Diff(row.out, out.String()); diff != "" || errOut.String() != row.errOut {
				t.Errorf("stderr %q, stdout (-want +got):\n%s", errOut.String(), diff)
			}
		})
	}
}

// followSession follows a session until it has no Job.
func followSession(t *testing.T, podClient *fakePodClient, s *v1alpha1.AgenticSession, send func(changeSender[*v1alpha1.AgenticSession])) (out, errOut string, err error) {
	t.Helper()
	isInactive := func(s *v1alpha1.AgenticSession) bool { return s.Status.Attempt.JobName == "" }
	return followWith(t, send, func(options StreamOptions) (func(Changes[*v1alpha1.AgenticSession]) error, error) {
		options.Container = v1alpha1.RunnerContainer
		streamer, err := NewSessionStreamer(t.Context(), podClient, s, options)
		return func(changes Changes[*v1alpha1.AgenticSession]) error {
			return streamer.Follow(t.Context(), s, isInactive, changes)
		}, err
	})
}

func TestAttemptsAreFollowedUntilTheSessionIsInactive(t *testing.T) {
	earlier, first, second := sessionPod("talk-r1-a1", 0, exitedRunner()), sessionPod("talk-r1-a2", 1, exitedRunner()), sessionPod("talk-r1-a3", 2, exitedRunner())
	podClient := &fakePodClient{pods: []corev1.Pod{earlier, first, second}, logs: map[string][]recording{
		"talk-r1-a1-x": {{text: logLine(1, "never")}}, "talk-r1-a2-x": {{text: logLine(2, "one")}}, "talk-r1-a3-x": {{text: logLine(3, "two")}},
	}}
	out, errOut, err := followSession(t, podClient, sessionWithJob("talk-r1-a2", "talk-r1-a1"), func(sender changeSender[*v1alpha1.AgenticSession]) {
		sender.pods <- follow.ObjectUpdate[*corev1.Pod]{Object: &earlier}
		sender.pods <- follow.ObjectUpdate[*corev1.Pod]{Object: &first}
		// The Pod of the next attempt is found only by the last list request.
		sender.objects <- follow.ObjectUpdate[*v1alpha1.AgenticSession]{Object: sessionWithJob("talk-r1-a3", "talk-r1-a1", "talk-r1-a2")}
		sender.objects <- follow.ObjectUpdate[*v1alpha1.AgenticSession]{Object: sessionWithJob("", "talk-r1-a1", "talk-r1-a2", "talk-r1-a3")}
	})
	if diff := cmp.Diff("r1-a2 | one\nr1-a3 | two\n", out); diff != "" || errOut != "" || err != nil {
		t.Errorf("stderr %q, error %v, stdout (-want +got):\n%s", errOut, err, diff)
	}
}
