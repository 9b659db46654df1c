package plugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/test/require"
)

// lastJob returns the last message of queue mail.
func (g *deadLetterBroker) lastJob() *jetstream.RawStreamMsg {
	g.t.Helper()
	js := g.JetStream()
	name, err := js.StreamNameBySubject(g.t.Context(), "yardmaster.mail.ready.default")
	require.NoError(g.t, err)
	stream, err := js.Stream(g.t.Context(), name)
	require.NoError(g.t, err)
	message, err := stream.GetLastMsgForSubject(g.t.Context(), "yardmaster.mail.ready.default")
	require.NoError(g.t, err)
	return message
}

func TestASentJobHasItsPayloadKindAndHeaders(t *testing.T) {
	g := newDeadLetterBroker(t, 0)
	file := filepath.Join(t.TempDir(), "order.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"order":7}`), 0o600))
	const command = "queue send mail --kind invoice --id order-7 --timeout 30s --header Tenant=acme -f "
	code, out, errOut := runPlugin(t, command+file, natsQueue("mail"), natsSecret(g.clientURL()))
	if code != exitSuccess || out != "job order-7 sent to queue.yardmaster.dev/mail\n" {
		t.Fatalf("exit code %d, stdout %q, stderr %q", code, out, errOut)
	}
	message := g.lastJob()
	if string(message.Data) != `{"order":7}` || message.Header.Get("Tenant") != "acme" || message.Header.Get("Yardmaster-Kind") != "invoice" {
		t.Errorf("payload %q, headers %v", message.Data, message.Header)
	}
	_, out, _ = runPlugin(t, command+file, natsQueue("mail"), natsSecret(g.clientURL()))
	require.Equal(t, "queue.yardmaster.dev/mail has job order-7 already\n", out)
	g.expectCounts(0, 1)
}

func TestAUniqueJobIsSentOnceAndTheSecondNamesTheFirst(t *testing.T) {
	g := newDeadLetterBroker(t, 0)
	send := func(flags string) (int, string, string) {
		return runPlugin(t, "queue send mail --data x "+flags, natsQueue("mail"), natsSecret(g.clientURL()))
	}
	for _, key := range []string{"--unique customer-7", "--unique customer-8 --unique-for 1h"} {
		id := "first-of-" + strings.Fields(key)[1]
		if code, out, errOut := send(key + " --id " + id); code != exitSuccess || !strings.Contains(out, id+" sent") {
			t.Fatalf("exit code %d, stdout %q, stderr %q", code, out, errOut)
		}
		if code, out, errOut := send(key); code != exitError || out != "" || !strings.Contains(errOut, "unique") || !strings.Contains(errOut, id) {
			t.Errorf("the second with %s: exit code %d, stdout %q, stderr %q", key, code, out, errOut)
		}
	}
	g.expectCounts(0, 2)
}

func TestJobsThatCannotBeSent(t *testing.T) {
	g := newDeadLetterBroker(t, 0)
	for args, want := range map[string]string{
		"mail":                                        "set either --filename or --data",
		"mail --data x -f y":                          "set either --filename or --data",
		"mail -f /no/such/file":                       "no such file",
		"mail --data x --unique-for 1h":               "--unique-for requires --unique",
		"mail --data x --unique=":                     "unique",
		"mail --data x --unique a/b --unique-for 1ms": "uniqueFor is 1ms",
		"mail --data x --delay -1s":                   "invalid --delay -1s",
		"mail --data x --header Tenant":               `invalid --header "Tenant": must be NAME=VALUE`,
		"mail --data x --header Nats-Msg-Id=1":        "has a reserved prefix",
		"mail --data x --priority urgent":             "urgent",
		"mail --data x --timeout 1ns":                 "timeout is 1ns",
		"video --data x":                              "video",
	} {
		t.Run(args, func(t *testing.T) {
			code, out, errOut := runPlugin(t, "queue send "+args, natsQueue("mail"), natsQueue("video"), natsSecret(g.clientURL()))
			if code != exitError || out != "" || !strings.Contains(errOut, want) {
				t.Errorf("exit code %d, stdout %q, stderr %q, want %q", code, out, errOut, want)
			}
		})
	}
	g.expectCounts(0, 0)
}
