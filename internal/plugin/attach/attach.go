// Package attach sends messages to an interactive session of session-runner, and prints the events of its answers.
package attach

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
	"github.com/yardmaster/yardmaster/internal/pod/agentprofile"
)

const (
	// maxMessageBytes is the limit of a session.
	maxMessageBytes = 64 << 10
	// maxEventBytes bounds a line of the answer, and maxErrorBytes the text of an error.
	maxEventBytes = 1 << 20
	maxErrorBytes = 1 << 10
	prompt        = "> "
)

// ErrFailed means that the agent did not finish its work on a message. The output shows the reason.
var ErrFailed = errors.New("the agent failed")

// statusError is a response other than a stream of events.
type statusError struct{ text string }

func (e *statusError) Error() string { return e.text }

// Session is an interactive session.
type Session struct {
	// URL accepts messages.
	URL string
	// Name of the session, for messages.
	Name        string
	In          io.Reader
	Out, ErrOut io.Writer
	// Render returns the lines to print for an event in JSON.
	Render func(line []byte) []string
	// Interrupts ends the display of an answer; may be nil.
	Interrupts <-chan os.Signal
}

// SendAll sends the whole input as one message, for scripts. It returns ErrFailed if the agent does not finish its work.
func (s *Session) SendAll(ctx context.Context) error {
	message, err := io.ReadAll(io.LimitReader(s.In, maxMessageBytes+1))
	switch {
	case err != nil:
		return fmt.Errorf("reading the message: %w", err)
	case len(message) > maxMessageBytes:
		return fmt.Errorf("the message has more than %d bytes", maxMessageBytes)
	}
	return s.send(ctx, string(message))
}

// Talk sends each line of the input as a message, until the end of the input.
func (s *Session) Talk(ctx context.Context) error {
	fmt.Fprintln(s.ErrOut, "Each line is a message. Ctrl-C ends the display of an answer, Ctrl-D leaves. The session continues.")
	lines, failed := readLines(ctx, s.In)
	for {
		fmt.Fprint(s.ErrOut, prompt)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.Interrupts:
			fmt.Fprintln(s.ErrOut)
		case line, ok := <-lines:
			if !ok {
				fmt.Fprintln(s.ErrOut)
				return <-failed
			}
			if err := s.answer(ctx, line); err != nil {
				return err
			}
		}
	}
}

func readLines(ctx context.Context, in io.Reader) (lines <-chan string, failed <-chan error) {
	out, end := make(chan string), make(chan error, 1)
	go func() {
		defer close(out)
		scanner := bufio.NewScanner(in)
		scanner.Buffer(nil, maxMessageBytes+1)
		for scanner.Scan() {
			select {
			case out <- scanner.Text():
			case <-ctx.Done():
				return
			}
		}
		end <- scanner.Err()
	}()
	return out, end
}

// answer sends one line. It returns an error if the session no longer answers.
func (s *Session) answer(ctx context.Context, line string) error {
	if strings.TrimSpace(line) == "" {
		return nil
	}
	turn, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.send(turn, line) }()
	select {
	case err := <-done:
		if status := (*statusError)(nil); errors.As(err, &status) {
			fmt.Fprintln(s.ErrOut, "error:", err)
			return nil
		}
		if errors.Is(err, ErrFailed) {
			return nil // the output shows it
		}
		return err
	case <-s.Interrupts:
		cancel()
		<-done //nolint:errcheck // the error is that of the cancelation
		fmt.Fprintf(s.ErrOut, "\nThe agent continues: kubectl yardmaster session logs %s -f shows its work.\n", s.Name)
		return nil
	}
}

func (s *Session) send(ctx context.Context, message string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, strings.NewReader(message))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "text/plain; charset=utf-8")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("sending the message: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, maxErrorBytes)) // the status is enough
		return &statusError{fmt.Sprintf("the session answered %s: %s", response.Status, terminal.Sanitize(string(bytes.TrimSpace(text))))}
	}
	return s.print(response.Body)
}

func (s *Session) print(answer io.Reader) error {
	end := ErrFailed // unless there is a result
	scanner := bufio.NewScanner(answer)
	scanner.Buffer(nil, maxEventBytes)
	for scanner.Scan() {
		event := agentprofile.Event{}
		if json.Unmarshal(scanner.Bytes(), &event) == nil && event.Type == agentprofile.EventResult {
			if end = nil; event.Failed {
				end = ErrFailed
			}
		}
		if err := terminal.WriteLines(s.Out, s.Render(scanner.Bytes())); err != nil {
			return err
		}
	}
	if err := scanner.Err(); err != nil {
		return fmt.Errorf("reading the answer, on which the agent may continue to work: %w", err)
	}
	return end
}
