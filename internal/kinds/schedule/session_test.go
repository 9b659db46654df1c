package schedule

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestStoppedSessionHasEndedWithItsLastAttempt(t *testing.T) {
	created := metav1.NewTime(time.Date(2026, 11, 27, 2, 0, 0, 0, time.UTC))
	ended := metav1.NewTime(created.Add(time.Hour))
	session := &v1alpha1.AgenticSession{}
	session.CreationTimestamp = created
	session.Status.Phase = v1alpha1.SessionStopped
	if run := RunOfSession(session); !run.IsFinished || !run.CompletionTime.Equal(created.Time) {
		t.Errorf("a session that was stopped before its first attempt: %+v", run)
	}
	session.Status.Attempts = make([]v1alpha1.SessionAttempt, 2)
	session.Status.Attempts[0].CompletionTime, session.Status.Attempts[1].CompletionTime = &created, &ended
	if run := RunOfSession(session); !run.IsFinished || !run.CompletionTime.Equal(ended.Time) {
		t.Errorf("want the end %s of the last attempt, got %+v", ended, run)
	}
}
