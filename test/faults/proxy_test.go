package faults

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/hostile"
	"github.com/yardmaster/yardmaster/test/require"
)

// startEcho runs a server that answers with what it receives.
func startEcho(t *testing.T) (address string) {
	t.Helper()
	listener := require.Call((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")).Succeeds(t)
	t.Cleanup(func() { _ = listener.Close() })
	go hostile.Serve(listener, func(conn net.Conn) { _, _ = io.Copy(conn, conn) })
	return listener.Addr().String()
}

// ask sends a line, and returns the answer as one line.
func ask(t *testing.T, connection net.Conn, answers *bufio.Reader) string {
	t.Helper()
	if _, err := io.WriteString(connection, "ping\n"); err != nil {
		return err.Error()
	}
	line, err := answers.ReadString('\n')
	if err != nil {
		return "closed"
	}
	return line
}

func TestAProxyMakesItsServerFailUntilItIsRepaired(t *testing.T) {
	for fault, want := range map[Fault]string{
		AnswersSlowly: "ping\n", AnswersWithGarbage: strings.TrimSuffix(garbage, "\r\n"), AnswersTwice: "ping\n", Hangs: "ping\n",
		NeverStarts: "closed", StartsLate: "closed", Disappears: "closed",
	} {
		t.Run("a server that "+string(fault), func(t *testing.T) {
			t.Parallel()
			p := StartProxy(t, startEcho(t))
			dial := func() (net.Conn, *bufio.Reader) {
				connection := require.Call(net.Dial("tcp", p.Address())).Succeeds(t)
				t.Cleanup(func() { _ = connection.Close() })
				return connection, bufio.NewReader(connection)
			}
			connection, answers := dial()
			require.Equal(t, "ping\n", ask(t, connection, answers))
			p.Set(fault)
			began := time.Now()
			if fault == Hangs {
				time.AfterFunc(slowAnswer, p.Repair)
			}
			if got := ask(t, connection, answers); got != want && (want != "closed" || got == "ping\n") {
				t.Errorf("the answer is %q, want %q", got, want)
			}
			took, isSlow := time.Since(began), fault == AnswersSlowly || fault == Hangs
			require.True(t, !isSlow || took >= slowAnswer, "the answer took %s, want at least %s", took, slowAnswer)
			if fault == AnswersTwice {
				require.Equal(t, want, require.Call(answers.ReadString('\n')).Succeeds(t))
			}
			if want == "closed" {
				if connection, answers = dial(); ask(t, connection, answers) == "ping\n" {
					t.Error("a new connection is served")
				}
			}
			p.Repair()
			connection, answers = dial()
			require.Equal(t, "ping\n", ask(t, connection, answers))
		})
	}
}
