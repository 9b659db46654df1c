package agenticsession

import (
	"encoding/json"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// For any object and status, including manually edited ones, Decide does not panic, does not repeat
// questions, and hardens every Pod.
func FuzzDecideNeverPanics(f *testing.F) {
	session := &v1alpha1.AgenticSession{}
	session.Name, session.Spec.Prompt = "a", "b"
	job := &batchv1.Job{}
	for _, seed := range []v1alpha1.SessionPhase{"", v1alpha1.SessionRunning} {
		session.Status.Phase = seed
		session.Status.Attempt.JobName = "a-r1-a1"
		object, err := json.Marshal(session)
		if err != nil {
			f.Fatal(err)
		}
		run, err := json.Marshal(job)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(object, run, []byte(`{}`), int64(3))
	}
	f.Fuzz(func(t *testing.T, object, run, pod []byte, seconds int64) {
		s, j, p := &v1alpha1.AgenticSession{}, &batchv1.Job{}, corev1.Pod{}
		if json.Unmarshal(object, s) != nil || json.Unmarshal(run, j) != nil || json.Unmarshal(pod, &p) != nil {
			return
		}
		in := Observation{Session: s, Runner: newTestRunner(), Jobs: []*batchv1.Job{j}, Pods: []corev1.Pod{p}, Now: time.Unix(seconds, 0)}
		in.Answers = Answers{Jobs: map[string]*batchv1.Job{s.Status.Attempt.JobName: nil}, Listed: true}
		decision := Decide(in)
		if decision.Question != nil {
			t.Error("the decision repeats an answered question")
		}
		if decision.CreateJob != nil {
			checkHardened(t, 0, &decision.CreateJob.Spec.Template.Spec)
		}
	})
}
