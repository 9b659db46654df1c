package plugin

import (
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/logs"
)

// completionTimeout limits how long a shell waits for the API server.
const completionTimeout = 3 * time.Second

const noFileCompletion = cobra.ShellCompDirectiveNoFileComp

// completeRerunStart completes the value of `seq rerun --from`.
func (e *environment) completeRerunStart(command *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	starts := []cobra.Completion{v1alpha1.RerunFromFailed, v1alpha1.RerunFromStart}
	if sj := e.completionTarget(command, given); sj != nil {
		for i := range sj.Spec.Containers {
			starts = append(starts, sj.Spec.Containers[i].Name)
		}
	}
	return starts, noFileCompletion
}

func (e *environment) completeStepName(command *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if sj := e.completionTarget(command, given); sj != nil {
		return logs.StepNames(sj), noFileCompletion
	}
	return nil, noFileCompletion
}

// completionTarget reads the SequentialJob named on the command line. It returns nil if there is no name yet or the object cannot be
// read.
func (e *environment) completionTarget(command *cobra.Command, given []string) *v1alpha1.SequentialJob {
	if len(given) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(command.Context(), completionTimeout)
	defer cancel()
	_, sj, err := sequentialJobKind.connectAndGet(ctx, e, given[0])
	if err != nil {
		return nil
	}
	return sj
}

func completeValues(command *cobra.Command, flag string, values ...string) {
	panicOnError(command.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, noFileCompletion|cobra.ShellCompDirectiveKeepOrder)))
}

// fileFlags are the flags whose values are names of files.
var fileFlags = []string{
	clientcmd.RecommendedConfigPathFlag, clientcmd.FlagCertFile, clientcmd.FlagKeyFile, clientcmd.FlagCAFile, "filename", "prompt-file",
}

func completeGlobalFlags(env *environment, root *cobra.Command) {
	for flag, names := range map[string]func(*clientcmdapi.Config) iter.Seq[string]{
		clientcmd.FlagContext:      func(config *clientcmdapi.Config) iter.Seq[string] { return maps.Keys(config.Contexts) },
		clientcmd.FlagClusterName:  func(config *clientcmdapi.Config) iter.Seq[string] { return maps.Keys(config.Clusters) },
		clientcmd.FlagAuthInfoName: func(config *clientcmdapi.Config) iter.Seq[string] { return maps.Keys(config.AuthInfos) },
	} {
		panicOnError(root.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			config, err := env.clientConfig.RawConfig()
			if err != nil {
				return nil, noFileCompletion
			}
			return slices.Sorted(names(&config)), noFileCompletion
		}))
	}
	panicOnError(root.RegisterFlagCompletionFunc(clientcmd.FlagNamespace, env.completeNamespaces))
}

func (e *environment) completeNamespaces(command *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	noHint := func(*corev1.Namespace) string { return "" }
	return completeObjects(command, e, nil, &objectSelection{allNamespaces: true}, &corev1.NamespaceList{}, noHint)
}

// completeObjects completes the names of the selected objects that are not given yet, each with a hint. The shell filters them by the
// user's input.
func completeObjects[T client.Object](
	command *cobra.Command, env *environment, given []string, selection *objectSelection, list client.ObjectList, hint func(T) string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(command.Context(), completionTimeout)
	defer cancel()
	if _, _, err := selection.connectAndList(ctx, env, list, 0); err != nil {
		return nil, noFileCompletion
	}
	items, err := extractItems[T](list)
	if err != nil {
		return nil, noFileCompletion
	}
	var names []cobra.Completion
	for _, item := range items {
		if !slices.Contains(given, item.GetName()) {
			names = append(names, cobra.CompletionWithDesc(item.GetName(), hint(item)))
		}
	}
	return names, noFileCompletion
}

// completeRemainingFlags makes all other flags complete nothing. Without a function, cobra completes names of files.
func completeRemainingFlags(command *cobra.Command) {
	complete := func(flag *pflag.Flag) {
		if _, registered := command.GetFlagCompletionFunc(flag.Name); registered || slices.Contains(fileFlags, flag.Name) {
			return
		}
		panicOnError(command.RegisterFlagCompletionFunc(flag.Name, cobra.NoFileCompletions))
	}
	command.LocalNonPersistentFlags().VisitAll(complete)
	command.PersistentFlags().VisitAll(complete)
	for _, child := range command.Commands() {
		completeRemainingFlags(child)
	}
}

// panicOnError is for errors that only a programming mistake can cause, such as completion for a missing flag.
func panicOnError(err error) {
	if err != nil {
		panic(err)
	}
}
