package integration

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"


	"github.com/yardmaster/yardmaster/internal/plugin"
	"github.com/yardmaster/yardmaster/test/output"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestPluginWatchContinuesWhenTheAPIServerIsAvailableAgain(t *testing.T) {
	t.Parallel()
	s := createSequence(t, testbuilder.SequentialJob("etl", "").Step("extract").Step("load").Obj())
	var isUnavailable atomic.Bool
	server, kubeconfig := cluster.StartProxy(t, s.sj.Namespace, func(w http.ResponseWriter, r *http.Request, api http.Handler) {
		if isUnavailable.Load() {
			http.Error(w, "the API server is unavailable", http.StatusServiceUnavailable)
			return
		}
		api.ServeHTTP(w, r)
	}, nil)
	var out output.Buffer
	code := make(chan int, 1)
	arguments := []string{"seq", "watch", "etl", "--kubeconfig=" + kubeconfig}
	go func() { code <- plugin.Run(t.Context(), arguments, &out, &out) }()
	waitForOutput := func(text string) {
		t.Helper()
		poll.Until(t, fmt.Sprintf("the plugin to print %q", text), func() bool { return strings.Contains(out.String(), text) })
	}
	s.succeedStep("extract")
	waitForOutput("step extract: Succeeded")
	isUnavailable.Store(true)
	server.CloseClientConnections()
	waitForOutput("connection lost")
	s.succeedStep("load")
	isUnavailable.Store(false)
	waitForOutput("connection restored")
	waitForOutput("Completed, 2/2 steps")
	require.Equal(t, 0, <-code)
}
