package client

import (
	"encoding/json"
	"os/exec"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker/dial"
	"github.com/yardmaster/yardmaster/test/queuetest"
	"github.com/yardmaster/yardmaster/test/require"
)

// producers are the programs of examples/producer in other languages.
var producers = map[string][]string{
	"Python":     {"python3", "../examples/producer/enqueue.py"},
	"JavaScript": {"node", "../examples/producer/enqueue.mjs"},
}

func TestProducersInOtherLanguagesSendTheSameJobs(t *testing.T) {
	for language, program := range producers {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			env := newTestEnv(t, dial.NATSEngine)
			run := func(queue, payload string, arguments ...string) (answer struct{ Duplicate bool }, err error) {
				command := append(append(program[1:1:1], program[1], env.options.Broker.URL, queue, payload), arguments...)
				output, err := exec.CommandContext(t.Context(), program[0], command...).CombinedOutput()
				if err == nil {
					err = json.Unmarshal(output, &answer)
				}
				t.Logf("%v: %s", command[1:], output)
				return answer, err
			}
			next := env.consume("default")
			payload := `{"name": "Müller"}`
			due := time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano)
			for title, job := range map[string]struct {
				options   []Option
				arguments []string
			}{
				"with an ID": {
					[]Option{ID("a"), Kind("charge"), Timeout(time.Minute), Header("Tenant", "ü=1")},
					[]string{"Nats-Msg-Id=b", "Yardmaster-Kind=charge", "Yardmaster-Timeout=1m0s", "Tenant=ü=1"},
				},
				"delayed": {
					[]Option{ID("c"), At(time.Now().Add(time.Second))},
					[]string{"Nats-Msg-Id=d", "Yardmaster-Job-Id=d", "--at", due},
				},
			} {
				env.enqueue(payload, job.options...)
				want := next()
				for _, isDuplicate := range []bool{false, true} {
					answer, err := run("orders", payload, job.arguments...)
					require.True(t, err == nil && answer.Duplicate == isDuplicate, "%s: duplicate %t, want %t; %v", title, answer.Duplicate, isDuplicate, err)
				}
				queuetest.AssertSameJob(t, title, want, next())
			}
			_, err := run("nobody", payload)
			require.True(t, err != nil, "a job was sent to an unknown queue")
		})
	}
}
