package plugin

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

const notInstalledMessage = "Yardmaster is not installed in this cluster: the API server does not serve sequentialjobs.yardmaster.dev"

// describeError returns a line for each joined error, without repetitions.
func describeError(err error) []string {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var lines []string
		for _, one := range joined.Unwrap() {
			lines = append(lines, describeError(one)...)
		}
		return slices.Compact(lines)
	}
	var kind *meta.NoKindMatchError
	var resource *meta.NoResourceMatchError
	if errors.As(err, &kind) && kind.GroupKind.Kind != "SequentialJob" {
		return []string{fmt.Sprintf("the API server does not serve the kind %s of yardmaster.dev: install its CustomResourceDefinition", kind.GroupKind.Kind)}
	}
	if kind != nil || errors.As(err, &resource) {
		return []string{notInstalledMessage}
	}
	// The texts of client-go about a missing connection name the request that failed first, which the user did not make.
	var network *net.OpError
	var lookup *net.DNSError
	var request *url.Error
	text := err.Error()
	switch {
	case clientcmd.IsEmptyConfig(err):
		text = "no cluster is configured: set --kubeconfig, or the environment variable KUBECONFIG"
	case errors.As(err, &request) && (errors.As(err, &network) || errors.As(err, &lookup)):
		server := request.URL
		if parsed, parseErr := url.Parse(server); parseErr == nil && parsed.Host != "" {
			server = parsed.Scheme + "://" + parsed.Host
		}
		for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
			err = inner
		}
		text = fmt.Sprintf("cannot connect to the API server %s: %v; check the context with kubectl config current-context", server, err)
	case apierrors.IsUnauthorized(err):
		text = "the API server does not accept your credentials: log in again, or check the user of the context with kubectl config view --minify"
	}
	return []string{terminal.Sanitize(text)}
}

// rejectArguments is the Args of commands without arguments and of parent commands. If the argument is similar to the name of a
// subcommand, the error suggests this name.
func rejectArguments(command *cobra.Command, arguments []string) error {
	if len(arguments) == 0 {
		return nil
	}
	if !command.HasSubCommands() {
		return fmt.Errorf("unexpected argument %q: %s takes no arguments", arguments[0], command.CommandPath())
	}
	message := fmt.Sprintf("unknown command %q for %q", arguments[0], command.CommandPath())
	if command.SuggestionsMinimumDistance <= 0 {
		command.SuggestionsMinimumDistance = 2
	}
	if similar := command.SuggestionsFor(arguments[0]); len(similar) > 0 {
		return fmt.Errorf("%s: did you mean %s?", message, strings.Join(similar, " or "))
	}
	return fmt.Errorf("%s: see %s --help", message, command.CommandPath())
}
