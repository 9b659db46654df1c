package plugin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/test/require"
)

func failingLists(t *testing.T, err error, objects ...client.Object) client.WithWatch {
	return interceptor.NewClient(newFakeClient(t, objects...), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return err },
	})
}

func TestUIFailsWithoutAConnection(t *testing.T) {
	sequences := schema.GroupResource{Group: "yardmaster.dev", Resource: "sequentialjobs"}
	for name, err := range map[string]error{"no API server": errors.New("connection refused"), "no login": apierrors.NewUnauthorized("no token")} {
		t.Run(name, func(t *testing.T) {
			code, out, errOut := runPluginWith(t, "ui --no-browser", failingLists(t, err))
			require.True(t, code == exitError && out == "" && strings.HasPrefix(errOut, "error: "), outcome, code, out, errOut)
		})
	}
	cluster := &clusterConnection{WithWatch: failingLists(t, apierrors.NewForbidden(sequences, "", errors.New("no")))}
	err := checkConnection(t.Context(), cluster)
	require.True(t, err == nil, "a missing permission ends the command: %v", err)
}

func TestUIRejectsInvalidFlags(t *testing.T) {
	for flags, want := range map[string]string{
		"-A -n a":            "--namespace cannot be combined with --all-namespaces",
		"-n a -n ../b":       `invalid --namespace "../b"`,
		"-l ((":              "--selector: ",
		"-n a" + manyNames(): "more than 20 namespaces: use --all-namespaces",
		"--port 70000":       "--port",
		"--history=6h":       "--history needs --prometheus",
		"--prometheus=http://127.0.0.1:9090 --history=1m":  "must be between 10m and 90d",
		"--prometheus=http://127.0.0.1:9090 --history=91d": "must be between 10m and 90d",
		"--prometheus=localhost":                           "invalid --prometheus: must be an address such as",
		"--prometheus=ftp://me:secret@x":                   "invalid --prometheus: must be an address such as",
	} {
		c := failingLists(t, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no")))
		code, _, errOut := runPluginWith(t, "ui --no-browser "+flags, c)
		require.True(t, code == exitError && strings.Contains(errOut, want) && !strings.Contains(errOut, "secret"), "%s: %d, %q", flags, code, errOut)
	}
}

func manyNames() string {
	var names strings.Builder
	for i := range maxNamespaces {
		fmt.Fprintf(&names, ",n-%d", i)
	}
	return names.String()
}

func TestUIShowsSeveralNamespaces(t *testing.T) {
	for flags, want := range map[string]string{"": "namespace a", "-n b": "namespace b", "-n b -n c,b": "namespaces b, c", "-A -l team=data": "all namespaces, labels team=data"} {
		u := &uiCommand{environment: &environment{}}
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		set.StringSliceVarP(&u.namespaces, "namespace", "n", nil, "")
		set.BoolVarP(&u.allNamespaces, "all-namespaces", "A", false, "")
		set.StringVarP(&u.selector, "selector", "l", "", "")
		require.NoError(t, set.Parse(strings.Fields(flags)))
		scope, err := u.newScope(&clusterConnection{namespace: "a"})
		require.True(t, err == nil && scope.String() == want, "%s: %s, %v", flags, scope.String(), err)
	}
}

// The shown commands select the cluster of the page, without secrets.
func TestUIServesUntilItIsInterrupted(t *testing.T) {
	t.Setenv("KUBECONFIG", writeKubeconfig(t))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, printed := io.Pipe()
	c := newFakeClient(t)
	code := make(chan int)
	go func() {
		code <- runCommand(ctx, []string{"ui", "--no-browser", "-n", "a", "--context=c", "--as=jane", "--token=secret"}, &environment{
			out: printed, errOut: printed, now: func() time.Time { return testTime },
			connect: func(config clientcmd.ClientConfig) (*clusterConnection, error) {
				namespace, _, err := config.Namespace()
				return &clusterConnection{WithWatch: c, namespace: namespace}, err
			},
		})
	}()
	var address string
	for lines := bufio.NewScanner(out); lines.Scan() && !strings.HasPrefix(lines.Text(), "Press"); {
		if strings.HasPrefix(lines.Text(), "http://127.0.0.1:") {
			address = lines.Text()
		}
	}
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	browser := &http.Client{Jar: jar}
	base, _, _ := strings.Cut(address, "/login")
	for _, page := range []string{address, base + "/", base + "/k/seq", base + "/stale"} {
		response, err := browser.Get(page)
		require.NoError(t, err)
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		require.True(t, response.StatusCode == http.StatusOK, "%s: status %d: %s", page, response.StatusCode, body)
		if strings.HasSuffix(page, "/stale") && !strings.Contains(string(body), "kubectl yardmaster --as=jane --context=c report") || strings.Contains(string(body), "secret") {
			t.Errorf("the shown command does not select the cluster, or shows a secret: %s", body)
		}
	}
	stop()
	go io.Copy(io.Discard, out)
	require.Equal(t, exitInterrupted, <-code)
}
