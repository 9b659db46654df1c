package plugin

import (
	"errors"
	"net"
	"net/url"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestErrorsAreLinesThatSayWhatToDo(t *testing.T) {
	sequences := schema.GroupResource{Group: "yardmaster.dev", Resource: "sequentialjobs"}
	refused := &url.Error{
		Op: "Get", URL: "https://10.0.0.1:6443/api?timeout=32s", Err: &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")},
	}
	noKind := func(kind string) error { return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: kind}} }
	for name, row := range map[string]struct {
		err  error
		want []string
	}{
		"an error of the API server":   {apierrors.NewNotFound(sequences, "x"), []string{`sequentialjobs.yardmaster.dev "x" not found`}},
		"joined errors":                {errors.Join(errors.New("one"), errors.New("two")), []string{"one", "two"}},
		"an error of several lines":    {errors.New("one\ntwo"), []string{"one two"}},
		"a kind that is not installed": {noKind("SequentialJob"), []string{notInstalledMessage}},
		"one kind that is not installed": {
			noKind("Queue"),
			[]string{"the API server does not serve the kind Queue of yardmaster.dev: install its CustomResourceDefinition"},
		},
		"a resource that is not installed": {&meta.NoResourceMatchError{}, []string{notInstalledMessage}},
		"repeated errors":                  {errors.Join(&meta.NoResourceMatchError{}, &meta.NoResourceMatchError{}), []string{notInstalledMessage}},
		"the API server does not answer": {
			errors.Join(errors.New("failed to get server groups"), refused),
			[]string{
				"failed to get server groups",
				"cannot connect to the API server https://10.0.0.1:6443: connection refused; check the context with kubectl config current-context",
			},
		},
		"no cluster is configured": {
			clientcmd.ErrEmptyConfig, []string{"no cluster is configured: set --kubeconfig, or the environment variable KUBECONFIG"},
		},
		"the credentials are not accepted": {
			apierrors.NewUnauthorized("token expired"),
			[]string{"the API server does not accept your credentials: " +
				"log in again, or check the user of the context with kubectl config view --minify"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, row.want, describeError(row.err))
		})
	}
}
