package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
	"github.com/yardmaster/yardmaster/internal/plugin/ui"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/prometheus"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/watch"
)

type uiCommand struct {
	*environment

	allNamespaces, noBrowser bool
	namespaces               []string
	selector                 string
	prometheus, open         string
	history                  time.Duration
	port                     uint16
	openBrowser              func(ctx context.Context, address string) error
}

func newUICommand(env *environment) *cobra.Command {
	u := &uiCommand{environment: env, openBrowser: openBrowser, history: defaultHistory}
	command := &cobra.Command{
		Use:   "ui",
		Short: "Show Yardmaster workloads in a browser",
		Long: "Show Yardmaster workloads in a browser, until interrupted. The page is served on 127.0.0.1 by this command, shows what your permissions allow, " +
			"and runs actions with them. Its address works once.",
		Args:              rejectArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(command *cobra.Command, _ []string) error { return u.runUI(command) },
	}
	command.Flags().BoolVarP(&u.allNamespaces, "all-namespaces", "A", false, "Show objects in all namespaces.")
	// It replaces the global flag for a single namespace.
	command.Flags().StringSliceVarP(&u.namespaces, "namespace", "n", nil, "Show objects in these namespaces, up to 20. Repeat the flag, or separate them with commas.")
	panicOnError(command.RegisterFlagCompletionFunc(clientcmd.FlagNamespace, env.completeNamespaces))
	command.Flags().StringVarP(&u.selector, "selector", "l", "", "Show objects with these labels, such as team=data.")
	command.Flags().Uint16Var(&u.port, "port", 0, "Port on 127.0.0.1; 0 chooses a free one.")
	command.Flags().BoolVar(&u.noBrowser, "no-browser", false, "Print the address without opening it.")
	command.Flags().StringVar(&u.prometheus, "prometheus", "", "Address of a Prometheus server, such as http://127.0.0.1:9090, from which charts get their history.")
	addDurationFlag(command, &u.history, "history", "Time that the charts show from Prometheus, such as 6h or 7d.")
	command.Flags().StringVar(&u.open, "open", "", "Path of the page to open, as \"Copy link\" of a page writes it.")
	command.PreRunE = func(*cobra.Command, []string) error {
		switch {
		case command.Flags().Changed("history") && u.prometheus == "":
			return errors.New("--history needs --prometheus")
		case u.history < minHistory || u.history > maxHistory:
			return fmt.Errorf("invalid --history %s: must be between 10m and 90d", u.history)
		case u.open != "" && !ui.IsPage(u.open):
			return fmt.Errorf("invalid --open %q: no page has this path", terminal.Sanitize(u.open))
		}
		return nil
	}
	return command
}

// The limits of --history.
const (
	defaultHistory = 6 * time.Hour
	minHistory     = 10 * time.Minute
	maxHistory     = 90 * 24 * time.Hour
)

// newHistory returns nil without --prometheus.
func (u *uiCommand) newHistory() (*ui.History, error) {
	if u.prometheus == "" {
		return nil, nil //nolint:nilnil // nil means that there is no history
	}
	c, err := prometheus.NewClient(u.prometheus)
	if err != nil {
		return nil, fmt.Errorf("invalid --prometheus: %w", err)
	}
	return &ui.History{Client: c, Window: u.history}, nil
}

// uiMemoryLimit makes the garbage collector work harder before the process needs more memory.
const uiMemoryLimit = 120 << 20

func (u *uiCommand) runUI(command *cobra.Command) error {
	ctx, stop := context.WithCancel(command.Context())
	defer stop()
	cluster, err := u.connect(u.clientConfig)
	if err != nil {
		return err
	}
	if err := checkConnection(ctx, cluster); err != nil {
		return err
	}
	scope, err := u.newScope(cluster)
	if err != nil {
		return err
	}
	history, err := u.newHistory()
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(u.port))))
	if err != nil {
		return fmt.Errorf("--port %d: %w", u.port, err)
	}
	debug.SetMemoryLimit(uiMemoryLimit)
	store := watch.NewStore(scope, u.now)
	flags := selectedConnection(command.Flags()) // not those of the root, which another set parses
	place := scope.String()
	if config, configErr := u.clientConfig.RawConfig(); configErr == nil && config.CurrentContext != "" {
		place = config.CurrentContext + ", " + place
	}
	server := ui.NewServer(ui.Config{
		Store: store, Now: u.now, Place: place, CommandFlags: flags, History: history, Open: u.open, ScopeFlags: scopeFlags(&scope),
		Run: func(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
			return u.runInProcess(ctx, cluster, args, in, out, errOut)
		},
	}, listener.Addr())
	go store.Run(ctx, cluster.WithWatch)
	fmt.Fprintf(u.out, "Open this address; it works once:\n%s\nPress Ctrl+C to stop.\n", server.URL())
	if !u.noBrowser {
		if err := u.openBrowser(ctx, server.URL()); err != nil {
			fmt.Fprintln(u.errOut, "no browser was opened:", err)
		}
	}
	if err := server.Serve(ctx, listener); err != nil {
		return err
	}
	return ctx.Err()
}

// scopeFlags returns the flags that select the objects of a scope.
func scopeFlags(scope *view.Scope) []string {
	flags := []string{"-A"}
	if len(scope.Namespaces) > 0 {
		flags = []string{"-n", strings.Join(scope.Namespaces, ",")}
	}
	if scope.Selector != nil && !scope.Selector.Empty() {
		flags = append(flags, "-l", scope.Selector.String())
	}
	return flags
}

// maxNamespaces limits the watches: each namespace has five.
const maxNamespaces = 20

func (u *uiCommand) newScope(cluster *clusterConnection) (view.Scope, error) {
	selector, err := parseSelector(u.selector)
	scope := view.Scope{Namespaces: slices.Compact(slices.Sorted(slices.Values(u.namespaces))), Selector: selector}
	switch {
	case err != nil:
		return scope, err
	case u.allNamespaces && len(scope.Namespaces) > 0:
		return scope, errors.New("--namespace cannot be combined with --all-namespaces")
	case len(scope.Namespaces) > maxNamespaces:
		return scope, fmt.Errorf("more than %d namespaces: use --all-namespaces", maxNamespaces)
	case !u.allNamespaces && len(scope.Namespaces) == 0:
		scope.Namespaces = []string{cluster.namespace}
	}
	for _, namespace := range scope.Namespaces {
		if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
			return scope, fmt.Errorf("invalid --namespace %q: %s", terminal.Sanitize(namespace), problems[0])
		}
	}
	return scope, nil
}

// checkConnection returns an error if the API server does not answer. A missing permission is not an error: the pages show it.
func checkConnection(ctx context.Context, cluster *clusterConnection) error {
	err := cluster.List(ctx, &v1alpha1.SequentialJobList{}, client.InNamespace(cluster.namespace), client.Limit(1))
	if isPermissionError(err) && !apierrors.IsUnauthorized(err) {
		return nil
	}
	return err
}

// runInProcess runs a command with the connection of the pages, so that they can do exactly what the user could type.
func (u *uiCommand) runInProcess(ctx context.Context, cluster *clusterConnection, args []string, in io.Reader, out, errOut io.Writer) int {
	return runCommand(ctx, args, &environment{
		in: in, out: out, errOut: errOut, now: u.now,
		connect: func(config clientcmd.ClientConfig) (*clusterConnection, error) {
			namespace, _, err := config.Namespace()
			connection := *cluster
			connection.namespace = namespace
			return &connection, err
		},
	})
}

// shownFlags are the flags that select a connection and are no secret.
var shownFlags = []string{clientcmd.RecommendedConfigPathFlag, clientcmd.FlagContext, clientcmd.FlagClusterName, clientcmd.FlagAuthInfoName, clientcmd.FlagImpersonate, clientcmd.FlagAPIServer}

// selectedConnection returns the flags with which the user selected the cluster: the commands on pages need them too.
func selectedConnection(flags *pflag.FlagSet) []string {
	var selected []string
	flags.Visit(func(flag *pflag.Flag) {
		if slices.Contains(shownFlags, flag.Name) {
			selected = append(selected, "--"+flag.Name+"="+flag.Value.String())
		}
	})
	return selected
}

var errNoBrowser = errors.New("found no program that opens addresses")

// openBrowser opens an address with the program of the platform, and does not wait for it.
func openBrowser(ctx context.Context, address string) error {
	candidates := [][]string{{"xdg-open"}, {"wslview"}}
	switch runtime.GOOS {
	case "darwin":
		candidates = [][]string{{"open"}}
	case "windows":
		candidates = [][]string{{"rundll32", "url.dll,FileProtocolHandler"}}
	}
	for _, words := range candidates {
		program, err := exec.LookPath(words[0])
		if err != nil {
			continue
		}
		command := exec.CommandContext(context.WithoutCancel(ctx), program, append(words[1:], address)...)
		if err := command.Start(); err != nil {
			return err
		}
		go func() { _ = command.Wait() }()
		return nil
	}
	return errNoBrowser
}
