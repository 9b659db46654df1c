package sessionsocket

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
)

func TestAContainerThatNeverListensIsAnErrorAfterAMinute(t *testing.T) {
	directory := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		if _, err := Dial(context.Background(), filepath.Join(directory, "a.sock")); err == nil {
			t.Error("connected to nothing")
		}
	})
}
