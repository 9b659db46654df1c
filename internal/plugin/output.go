package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// The values of --output. Those of outputJSONPath and outputColumns are followed by = and an
// expression.
const (
	outputTable    = "table"
	outputWide     = "wide"
	outputText     = "text"
	outputJSON     = "json"
	outputYAML     = "yaml"
	outputName     = "name"
	outputJSONPath = "jsonpath"
	outputColumns  = "custom-columns"
)

// outputOptions hold the flags that select how objects are printed.
type outputOptions struct {
	format    string
	noHeaders bool
	sortBy    string

	// formats are the valid formats without an expression.
	formats []string
	// expression of the format, if it has one.
	expression string
}

// addOutputFlags adds --output and --no-headers. The first format is the default.
func (o *outputOptions) addOutputFlags(command *cobra.Command, formats ...string) {
	o.formats = formats
	usage := fmt.Sprintf("Output format: %s, jsonpath=TEMPLATE or custom-columns=HEADER:PATH,….", strings.Join(formats, ", "))
	command.Flags().StringVarP(&o.format, "output", "o", formats[0], usage)
	command.Flags().BoolVar(&o.noHeaders, "no-headers", false, "Print tables without the header.")
	completeValues(command, "output", append(slices.Clone(formats), outputJSONPath+"=", outputColumns+"=")...)
}

func (o *outputOptions) isTable() bool { return o.format == outputTable || o.format == outputWide }

// validateOutput checks the flags before anything is read.
func (o *outputOptions) validateOutput() error {
	if format, expression, found := strings.Cut(o.format, "="); found && (format == outputJSONPath || format == outputColumns) {
		if expression == "" {
			return fmt.Errorf("invalid --output %q: the expression is missing, such as %s", o.format, exampleExpressions[format])
		}
		o.format, o.expression = format, expression
	}
	if !slices.Contains(append(slices.Clone(o.formats), outputJSONPath, outputColumns), o.format) {
		return fmt.Errorf("invalid --output %q: must be one of %s, %s=… or %s=…", o.format, strings.Join(o.formats, ", "), outputJSONPath, outputColumns)
	}
	if o.expression == "" && (o.format == outputJSONPath || o.format == outputColumns) {
		return fmt.Errorf("invalid --output %q: the expression is missing, such as %s", o.format, exampleExpressions[o.format])
	}
	return o.validateExpressions()
}

var exampleExpressions = map[string]string{
	outputJSONPath: "jsonpath='{.items[*].metadata.name}'",
	outputColumns:  "custom-columns=NAME:.metadata.name",
}

func (o *outputOptions) validateExpressions() error {
	var errs []error
	switch o.format {
	case outputJSONPath:
		_, err := parseTemplate(o.expression)
		errs = append(errs, err)
	case outputColumns:
		_, err := parseColumns(o.expression)
		errs = append(errs, err)
	}
	if o.sortBy != "" {
		_, err := parsePath(o.sortBy)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// printObject prints an object or a list in a format that is not a table.
func (o *outputOptions) printObject(out io.Writer, object any) error {
	switch o.format {
	case outputJSONPath:
		return printTemplate(out, o.expression, object)
	case outputColumns:
		return o.printColumns(out, object)
	default:
		return printEncoded(out, o.format, object)
	}
}

// printEncoded prints a value as JSON or YAML.
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
