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
	"github.com/yardmaster/yardmaster/internal/session"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

// talk is a session at that attempt of its first run, or after it if that has ended.
func talk(job string, ended ...string) *v1alpha1.AgenticSession {
	s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: "talk", Namespace: "a", UID: "u"}}
	s.Status.Job = job
	for _, job := range ended {
		s.Status.Runs = append(s.Status.Runs, v1alpha1.SessionRun{Job: job})
	}
	return s
}

// ofJob is the Pod of a session's Job, made so many minutes after noon.
func ofJob(job string, minutes int, like *testbuilder.PodBuilder) corev1.Pod {
	pod := like.Obj()
	pod.Name, pod.Namespace = job+"-x", "a"
	pod.Labels = map[string]string{session.LabelSessionUID: "u"}
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: job, UID: "j", Controller: new(true)}}
	pod.CreationTimestamp = metav1.NewTime(noon.Add(time.Duration(minutes) * time.Minute))
	return pod
}

func exited() *testbuilder.PodBuilder { return testbuilder.Pod(v1alpha1.RunnerContainer).Exited(0, "") }

func TestTheLogsOfASession(t *testing.T) {
	first, second := ofJob("talk-r1-a9", 0, exited()), ofJob("talk-r1-a10", 1, exited())
	stranger := ofJob("talk-r1-a11", 2, exited())
	stranger.Labels = nil
	starting := ofJob("talk-r1-a11", 2, testbuilder.Pod(v1alpha1.RunnerContainer).Waiting("ImagePullBackOff", ""))
	for title, row := range map[string]struct {
		session   *v1alpha1.AgenticSession
		pods      []corev1.Pod
		container string
		options   StreamOptions
		out, said string
	}{
		"of its last attempt":      {talk("", "talk-r1-a9", "talk-r1-a10"), []corev1.Pod{second, first}, "", StreamOptions{}, "r1-a10 | two\n", ""},
		"of the one under way":     {talk("talk-r1-a10", "talk-r1-a9"), []corev1.Pod{second, first}, "", StreamOptions{}, "r1-a10 | two\n", ""},
		"of all, the oldest first": {talk("talk-r1-a10", "talk-r1-a9"), []corev1.Pod{second, first}, "", StreamOptions{AllAttempts: true}, "r1-a9 | one\nr1-a10 | two\n", ""},
		"of no other's Pod":        {talk("talk-r1-a11"), []corev1.Pod{stranger}, "", StreamOptions{}, "", "attempt r1-a11 has no log: there is no Pod of its Job talk-r1-a11\n"},
		"before it has begun":      {talk(""), nil, "", StreamOptions{}, "", "there are no logs yet: no attempt has begun\n"},
		"when its Pod is gone":     {talk("", "talk-r1-a9"), nil, "", StreamOptions{}, "", "attempt r1-a9 has no log: there is no Pod of its Job talk-r1-a9\n"},
		"when it does not start": {
			talk("talk-r1-a11"), []corev1.Pod{starting}, "", StreamOptions{}, "", "attempt r1-a11 has no log: container runner of Pod talk-r1-a11-x has not started: ImagePullBackOff\n",
		},
		"of a container that is none": {
			talk("talk-r1-a10"), []corev1.Pod{second}, "proxy", StreamOptions{}, "", "attempt r1-a10 has no log: container proxy of Pod talk-r1-a10-x has not started\n",
		},
	} {
		t.Run(title, func(t *testing.T) {
			var out, errOut bytes.Buffer
			row.options.Out, row.options.ErrOut = &out, &errOut
			cluster := &recorded{pods: row.pods, logs: map[string][]recording{"talk-r1-a9-x": {{text: line(1, "one")}}, "talk-r1-a10-x": {{text: line(2, "two")}}}}
			container := v1alpha1.RunnerContainer
			if row.container != "" {
				container = row.container
			}
			teller, err := NewSessionStreamer(t.Context(), cluster, row.session, container, row.options)
			if err != nil {
				t.Fatal(err)
			}
			if err := teller.PrintCurrent(t.Context(), row.session); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(row.out, out.String()); diff != "" || errOut.String() != row.said {
				t.Errorf("said %q, told (-want +got):\n%s", errOut.String(), diff)
			}
		})
	}
}

// sessionWorld is one in which a session and its Pods change as a test tells.
type sessionWorld struct {
	sessions chan follow.ObjectUpdate[*v1alpha1.AgenticSession]
	pods     chan follow.ObjectUpdate[*corev1.Pod]
	trouble  chan error
}

// followedSession is what a follower tells and says while the story goes on. The session is
// over when it has no Job.
func followedSession(t *testing.T, cluster *recorded, s *v1alpha1.AgenticSession, story func(sessionWorld)) (out, errOut string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	w := sessionWorld{make(chan follow.ObjectUpdate[*v1alpha1.AgenticSession]), make(chan follow.ObjectUpdate[*corev1.Pod]), make(chan error)}
	teller, err := NewSessionStreamer(t.Context(), cluster, s, v1alpha1.RunnerContainer, StreamOptions{Follow: true, Retry: time.Millisecond, Out: &stdout, ErrOut: &stderr})
	if err != nil {
		t.Fatal(err)
	}
	over := func(s *v1alpha1.AgenticSession) bool { return s.Status.Job == "" }
	done := make(chan error)
	go func() {
		done <- teller.Follow(t.Context(), s, over, SessionWorld{Sessions: w.sessions, Pods: w.pods, Trouble: w.trouble})
	}()
	story(w)
	select {
	case err = <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("it does not end")
	}
	return stdout.String(), stderr.String(), err
}

func TestAttemptsAreFollowedUntilTheSessionRests(t *testing.T) {
	earlier, first, second := ofJob("talk-r1-a1", 0, exited()), ofJob("talk-r1-a2", 1, exited()), ofJob("talk-r1-a3", 2, exited())
	cluster := &recorded{pods: []corev1.Pod{earlier, first, second}, logs: map[string][]recording{
		"talk-r1-a1-x": {{text: line(1, "never")}}, "talk-r1-a2-x": {{text: line(2, "one")}}, "talk-r1-a3-x": {{text: line(3, "two")}},
	}}
	out, errOut, err := followedSession(t, cluster, talk("talk-r1-a2", "talk-r1-a1"), func(w sessionWorld) {
		w.pods <- follow.ObjectUpdate[*corev1.Pod]{Object: &earlier}
		w.pods <- follow.ObjectUpdate[*corev1.Pod]{Object: &first}
		// The next attempt is seen before its Pod, which is asked for in the end.
		w.sessions <- follow.ObjectUpdate[*v1alpha1.AgenticSession]{Object: talk("talk-r1-a3", "talk-r1-a1", "talk-r1-a2")}
		w.sessions <- follow.ObjectUpdate[*v1alpha1.AgenticSession]{Object: talk("", "talk-r1-a1", "talk-r1-a2", "talk-r1-a3")}
	})
	if diff := cmp.Diff("r1-a2 | one\nr1-a3 | two\n", out); diff != "" || errOut != "" || err != nil {
		t.Errorf("said %q, error %v, told (-want +got):\n%s", errOut, err, diff)
	}
}

func TestFollowingASessionEndsWithIt(t *testing.T) {
	out, errOut, err := followedSession(t, &recorded{}, talk("talk-r1-a2"), func(w sessionWorld) {
		w.sessions <- follow.ObjectUpdate[*v1alpha1.AgenticSession]{Object: talk("talk-r1-a2"), Deleted: true}
	})
	if out != "" || errOut != "attempt r1-a2 has no log: there is no Pod of its Job talk-r1-a2\n" || err != nil {
		t.Errorf("told %q, said %q, error %v", out, errOut, err)
	}
}

func TestFollowingASessionEndsWithTroubleThatDoesNotPass(t *testing.T) {
	forbidden := errors.New("forbidden")
	if _, _, err := followedSession(t, &recorded{}, talk("talk-r1-a2"), func(w sessionWorld) { w.trouble <- forbidden }); !errors.Is(err, forbidden) {
		t.Errorf("error %v", err)
	}
}

func TestAListOfPodsIsTriedAgainWhenTheSessionRests(t *testing.T) {
	first := ofJob("talk-r1-a2", 1, exited())
	cluster := &recorded{pods: []corev1.Pod{first}, logs: map[string][]recording{"talk-r1-a2-x": {{text: line(2, "one")}}}}
	out, errOut, err := followedSession(t, cluster, talk("talk-r1-a2"), func(w sessionWorld) {
		cluster.away = errors.New("the API server is away")
		w.sessions <- follow.ObjectUpdate[*v1alpha1.AgenticSession]{Object: talk("", "talk-r1-a2")}
	})
	if out != "r1-a2 | one\n" || errOut != "listing Pods: the API server is away; trying again\n" || err != nil {
		t.Errorf("told %q, said %q, error %v", out, errOut, err)
	}
}
