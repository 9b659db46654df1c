package workercommand

import (
	"context"
	"io"
	"testing"

	"github.com/yardmaster/yardmaster/test/background"
	"github.com/yardmaster/yardmaster/test/queuetest"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestInvalidArgumentsAreRejected(t *testing.T) {
	for name, row := range map[string]struct {
		args []string
		want string
	}{
		"neither mode":           {nil, "exactly one of --forward and --exec is required"},
		"both modes":             {[]string{"--forward", "http://x", "--exec", "--", "true"}, "exactly one of --forward and --exec is required"},
		"no command":             {[]string{"--exec"}, "--exec requires a command"},
		"no such command":        {[]string{"--exec", "--", "no-such-command"}, `"no-such-command"`},
		"not a URL":              {[]string{"--forward", "127.0.0.1:80"}, "--forward is"},
		"unsupported URL scheme": {[]string{"--forward", "file:///etc/passwd"}, "--forward is"},
		"zero timeout":           {[]string{"--forward", "http://x", "--forward-timeout", "0s"}, "--forward-timeout is 0s"},
		"unexpected argument":    {[]string{"--forward", "http://x", "y"}, `unexpected argument "y"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseArguments(row.args, io.Discard)
			require.ErrorContains(t, err, row.want)
		})
	}
}

// runCommand runs a worker of the queue "orders" until stop is called, or the test ends. Its output is that of the commands that it runs.
func runCommand(t *testing.T, q *queuetest.Queue, output io.Writer, arguments ...string) (stop func()) {
	t.Helper()
	arguments = append([]string{"--broker-url", q.URL, "--queues", "orders", "--admin-address", "0", "--log-level", "error"}, arguments...)
	return background.Run(t, func(ctx context.Context) error { return Run(ctx, arguments, output, output) })
}
