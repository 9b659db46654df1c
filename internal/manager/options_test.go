package manager

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func environment(variables map[string]string) Environment {
	return func(name string) (string, bool) {
		value, found := variables[name]
		return value, found
	}
}

// summary is what of the options a row may want.
type summary struct {
	Controllers, Namespaces []string
	Concurrency             int
	KubeAPIQPS              float64
	LeaderElection          LeaderElection
	Metrics                 Metrics
	Webhook                 bool
	CertManagement          CertManagement
}

func defaults() summary {
	return summary{
		Controllers: []string{"sequentialjob"},
		Concurrency: 10,
		KubeAPIQPS:  -1,
		LeaderElection: LeaderElection{
			Enabled: true, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		},
		Metrics:        Metrics{Address: ":8443", Secure: true},
		Webhook:        true,
		CertManagement: CertsSelf,
	}
}

func TestParse(t *testing.T) {
	for name, row := range map[string]struct {
		args        string
		environment map[string]string
		want        func(*summary)
	}{
		"nothing given": {
			want: func(*summary) {},
		},
		"namespaces are sorted, and each is taken once": {
			args: "--namespaces=b,a,,b",
			want: func(s *summary) { s.Namespaces = []string{"a", "b"} },
		},
		"the environment stands in for a flag": {
			environment: map[string]string{"YARDMASTER_KUBE_API_QPS": "50", "YARDMASTER_LEADER_ELECT": "false"},
			want:        func(s *summary) { s.KubeAPIQPS, s.LeaderElection.Enabled = 50, false },
		},
		"a flag wins over the environment": {
			args:        "--concurrency=3",
			environment: map[string]string{"YARDMASTER_CONCURRENCY": "7"},
			want:        func(s *summary) { s.Concurrency = 3 },
		},
		"an empty variable is a value": {
			environment: map[string]string{"YARDMASTER_NAMESPACES": ""},
			want:        func(*summary) {},
		},
		"booleans are switched off": {
			args: "--webhook=false --metrics-secure=false --metrics-bind-address=0",
			want: func(s *summary) { s.Webhook, s.Metrics = false, Metrics{Address: "0"} },
		},
		"certificates from elsewhere": {
			args: "--cert-management=external",
			want: func(s *summary) { s.CertManagement = CertsExternal },
		},
	} {
		t.Run(name, func(t *testing.T) {
			options, err := Parse(strings.Fields(row.args), environment(row.environment), io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			want := defaults()
			row.want(&want)
			got := summary{
				names(options.Controllers), options.Namespaces, options.Concurrency, options.KubeAPIQPS,
				options.LeaderElection, options.Metrics, options.Webhook.Enabled, options.Webhook.CertManagement,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for name, row := range map[string]struct {
		args        string
		environment map[string]string
		want        string
	}{
		"a word that is no flag":             {args: "start", want: `unexpected argument "start"`},
		"an unknown flag":                    {args: "--speed=9", want: "not defined: -speed"},
		"an unknown controller":              {args: "--controllers=cron", want: `unknown controller "cron"`},
		"an unknown way to get certificates": {args: "--cert-management=magic", want: "must be self or external"},
		"nobody to do the work":              {args: "--concurrency=0", want: "must be at least 1"},
		"a variable of the wrong type": {
			environment: map[string]string{"YARDMASTER_WEBHOOK": "perhaps"},
			want:        `invalid value "perhaps" of YARDMASTER_WEBHOOK`,
		},
		"a lease that ends before it is renewed": {
			args: "--leader-election-lease-duration=5s",
			want: "must be longer than --leader-election-renew-deadline",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(strings.Fields(row.args), environment(row.environment), io.Discard)
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("error %v, want one with %q", err, row.want)
			}
		})
	}
}

func TestParsePrintsTheVersion(t *testing.T) {
	var output bytes.Buffer
	if _, err := Parse([]string{"--version"}, environment(nil), &output); !errors.Is(err, ErrVersion) {
		t.Errorf("error %v, want ErrVersion", err)
	}
	if got, want := output.String(), Version()+"\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}

func TestLocate(t *testing.T) {
	for name, row := range map[string]struct {
		args               string
		wantLeaseNamespace string
		wantError          string
	}{
		"the Lease is where the operator is": {
			args: "--operator-namespace=a", wantLeaseNamespace: "a",
		},
		"the Lease can be elsewhere": {
			args: "--operator-namespace=a --leader-election-namespace=b", wantLeaseNamespace: "b",
		},
		"outside a cluster neither is needed without Lease and certificates": {
			args: "--leader-elect=false --webhook=false",
		},
		"outside a cluster the Secret's namespace is unknown": {
			args: "--leader-elect=false", wantError: "--operator-namespace must be given",
		},
		"outside a cluster the Lease's namespace is unknown": {
			args: "--cert-management=external", wantError: "--leader-election-namespace must be given",
		},
	} {
		t.Run(name, func(t *testing.T) {
			options, err := Parse(strings.Fields(row.args), environment(nil), io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			err = options.locate()
			if row.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), row.wantError) {
					t.Errorf("error %v, want one with %q", err, row.wantError)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := options.LeaderElection.Namespace; got != row.wantLeaseNamespace {
				t.Errorf("Lease in %q, want %q", got, row.wantLeaseNamespace)
			}
		})
	}
}
