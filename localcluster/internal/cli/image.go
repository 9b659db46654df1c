package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/localcluster/internal/cluster"
	"github.com/yardmaster/yardmaster/localcluster/internal/image"
)

func newLoadImage(open opener) *cobra.Command {
	return &cobra.Command{
		Use:   "load-image FILE.tar...",
		Short: "Load images (Docker or OCI archives) into the node",
		Args:  cobra.MinimumNArgs(1),
		RunE: open.runE(func(command *cobra.Command, c *cluster.Cluster, files []string) error {
			for _, file := range files {
				loaded, err := c.LoadImage(command.Context(), file)
				if err != nil {
					return err
				}
				if loaded {
					fmt.Printf("loaded %s\n", file)
				} else {
					fmt.Printf("not loaded: %s: simulated nodes run no images\n", file)
				}
			}
			return nil
		}),
	}
}

func newBuildImage() *cobra.Command {
	made := image.Image{}
	var files []string
	var output string
	command := &cobra.Command{
		Use:   "build-image --tag NAME:TAG --file SOURCE:/path[:mode] --output FILE.tar",
		Short: "Build an image from scratch, without Docker and without a registry",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			for _, text := range files {
				file, err := image.ParseFile(text)
				if err != nil {
					return err
				}
				made.Files = append(made.Files, file)
			}
			if err := image.Write(output, made); err != nil {
				return err
			}
			fmt.Printf("wrote the image %s to %s\n", made.Tag, output)
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVar(&made.Tag, "tag", "", "name and tag of the image")
	flags.StringArrayVar(&files, "file", nil, "file to put into the image, as SOURCE:/path[:mode]; repeatable")
	flags.StringArrayVar(&made.Entrypoint, "entrypoint", nil, "program to run; repeat for its arguments")
	flags.StringVar(&made.User, "user", "", "user to run as, such as 65532:65532")
	flags.StringArrayVar(&made.Env, "env", nil, "environment variable, as K=V; repeatable")
	flags.StringVar(&made.Architecture, "architecture", runtime.GOARCH, "architecture of the programs, as in GOARCH")
	flags.StringVar(&output, "output", "", "tar file to write")
	for _, name := range []string{"tag", "file", "output"} {
		_ = command.MarkFlagRequired(name) // it fails for unknown flags only
	}
	return command
}
