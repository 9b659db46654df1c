package progress

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestWithoutATerminalAStepPrintsALineBeforeAndAfter(t *testing.T) {
	var out bytes.Buffer
	if err := Plain(&out).Step("building", "built", func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "  building ...\n  built (0s)\n" {
		t.Errorf("got %q", got)
	}
}

func TestOnATerminalTheLiveLineIsClearedAtTheEnd(t *testing.T) {
	var out bytes.Buffer
	p := &Printer{out: &out, live: true}
	if err := p.Step("building", "built", func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.HasSuffix(got, "\r\x1b[K  built (0s)\n") {
		t.Errorf("got %q", got)
	}
}

func TestFailedStepPrintsTheFailureAndReturnsTheError(t *testing.T) {
	var out bytes.Buffer
	failure := errors.New("failure")
	if err := Plain(&out).Step("building", "built", func() error { return failure }); !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
	if got := out.String(); !strings.Contains(got, "failed: building") {
		t.Errorf("got %q", got)
	}
}
