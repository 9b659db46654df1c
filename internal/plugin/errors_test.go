package plugin

import (
	"errors"
	"net"
	"net/url"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
)

func TestConnectionErrorsSayWhatToDo(t *testing.T) {
	refused := &url.Error{Op: "Get", URL: "https://10.0.0.1:6443/api?timeout=32s", Err: &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}}
	for name, row := range map[string]struct {
		err  error
		want string
	}{
		"the API server does not answer": {
			errors.Join(errors.New("failed to get server groups"), refused),
			"cannot connect to the API server https://10.0.0.1:6443: connection refused; check the context with kubectl config current-context",
		},
		"no cluster is configured": {clientcmd.ErrEmptyConfig, "no cluster is configured: set --kubeconfig, or the environment variable KUBECONFIG"},
		"the credentials are not accepted": {
			apierrors.NewUnauthorized("token expired"),
			"the API server does not accept your credentials: log in again, or check the user of the context with kubectl config view --minify",
		},
	} {
		t.Run(name, func(t *testing.T) {
			lines := describeError(row.err)
			if got := lines[len(lines)-1]; got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}
