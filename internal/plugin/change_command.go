package plugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// specChange is a command that makes the same change to each named object.
type specChange[T client.Object] struct {
	kind              *resourceKind[T]
	verb, short, long string
	// changeSpec makes the change, which may already be made.
	changeSpec func(T)
	// changedMessage and unchangedMessage are printed after the object's name.
	changedMessage, unchangedMessage string
	// remark returns an addition to the message. It is optional.
	remark func(T) string
	// overwrite writes the change even if someone else changed the object since it was read.
	overwrite bool
}

func newChangeCommand[T client.Object](env *environment, change specChange[T]) *cobra.Command {
	return &cobra.Command{
		Use:               change.verb + " NAME...",
		Short:             change.short,
		Long:              change.long + "\n\nIf an object cannot be changed, the others still are, and the exit code is 2.",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: change.kind.completeNames(env, anyNumberOfNames),
		RunE: func(command *cobra.Command, names []string) error {
			cluster, err := env.connect(env.clientConfig)
			if err != nil {
				return err
			}
			var failures []error
			for _, name := range names {
				message, err := change.applyToObject(command.Context(), cluster, name)
				if err != nil {
					failures = append(failures, err)
					continue
				}
				fmt.Fprintln(env.out, message)
			}
			return errors.Join(failures...)
		},
	}
}

func (c *specChange[T]) applyToObject(ctx context.Context, cluster *clusterConnection, name string) (string, error) {
	object, err := c.kind.getObject(ctx, cluster, name)
	if err != nil {
		return "", err
	}
	before, qualifiedName, message := deepCopy(object), c.kind.qualifiedName(object), c.changedMessage
	c.changeSpec(object)
	switch {
	case equality.Semantic.DeepEqual(before, object):
		message = c.unchangedMessage
	case c.overwrite:
		err = cluster.Patch(ctx, object, client.MergeFrom(before))
	default:
		err = cluster.patchIfUnchanged(ctx, qualifiedName, before, object)
	}
	if c.remark != nil {
		message += c.remark(object)
	}
	return qualifiedName + " " + message, err
}
