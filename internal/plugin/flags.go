package plugin

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
)

// The values of --output.
const (
	outputTable = "table"
	outputWide  = "wide"
	outputText  = "text"
	outputJSON  = "json"
	outputYAML  = "yaml"
	outputName  = "name"
)

// addOutputFlag adds --output. The first format is the default.
func addOutputFlag(command *cobra.Command, format *string, formats ...string) {
	last := len(formats) - 1
	usage := fmt.Sprintf("Output format: %s or %s.", strings.Join(formats[:last], ", "), formats[last])
	addChoiceFlag(command, command.Flags(), format, "output", "o", usage, formats...)
}

// annotationChoices is the annotation of a flag with the accepted values.
const annotationChoices = "choices"

// addChoiceFlag adds a flag that accepts only the choices. The first choice is the default.
func addChoiceFlag(command *cobra.Command, flags *pflag.FlagSet, value *string, name, shorthand, usage string, choices ...string) {
	flags.StringVarP(value, name, shorthand, choices[0], usage)
	panicOnError(flags.SetAnnotation(name, annotationChoices, choices))
	completeValues(command, name, choices...)
}

func validateChoice(flag, value string, choices ...string) error {
	if !slices.Contains(choices, value) {
		return fmt.Errorf("invalid --%s %q: must be one of %s", flag, value, strings.Join(choices, ", "))
	}
	return nil
}

func printEncoded(out io.Writer, format string, v any) error {
	if format == outputYAML {
		raw, err := yaml.Marshal(v)
		if err != nil {
			return err
		}
		_, err = out.Write(raw)
		return err
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// durationValue is the value of a flag that is not negative and may count days, such as 7d.
type durationValue struct{ value *time.Duration }

// addDurationFlag adds a flag for a duration, whose default is the present value.
func addDurationFlag(command *cobra.Command, value *time.Duration, name, usage string) {
	command.Flags().Var(durationValue{value}, name, usage)
}

// String implements pflag.Value. 0 is empty: help texts then have no default.
func (d durationValue) String() string {
	if d.value == nil || *d.value == 0 {
		return ""
	}
	return jobreport.FormatDuration(*d.value)
}

// Set implements pflag.Value.
func (d durationValue) Set(text string) error {
	value, err := jobreport.ParseDuration(text)
	if err == nil {
		*d.value = value
	}
	return err
}

// Type implements pflag.Value. It names the value in help texts.
func (durationValue) Type() string { return "duration" }
