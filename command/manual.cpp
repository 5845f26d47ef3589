#include "command/manual.h"

#include <aten_recompute/aten_recompute.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string_view>

#include "command/described_options.h"

namespace aten_recompute::command {
namespace {

// Returns text that roff shows as it is.
std::string escaped(std::string_view text) {
  std::string roff;
  for (const char c : text) {
    switch (c) {
      case '\\':
        roff += "\\e";
        break;
      case '-':
        roff += "\\-";
        break;
      case '\'':
        roff += "\\(aq";
        break;
      case '"':
        roff += "\\(dq";
        break;
      case '`':
        roff += "\\(ga";
        break;
      case '^':
        roff += "\\(ha";
        break;
      case '~':
        roff += "\\(ti";
        break;
      case '\n':
        roff += ' ';
        break;
      default:
        roff += c;
    }
  }
  // A line that begins with a point is a request.
  return !roff.empty() && roff.front() == '.' ? "\\&" + roff : roff;
}

std::string in_capitals(std::string text) {
  for (auto& c : text)
    c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

class Page {
 public:
  void title(const std::string& name) {
    roff_ += ".TH " + in_capitals(escaped(name)) + " 1 \"\" \"aten_recompute " +
             std::string(version()) + "\" \"User Commands\"\n";
  }
  void section(const std::string& name) { roff_ += ".SH " + in_capitals(escaped(name)) + "\n"; }
  void subsection(const std::string& name) { roff_ += ".SS " + escaped(name) + "\n"; }
  void line(const std::string& roff) { roff_ += roff + "\n"; }
  void paragraph(const std::string& text) { roff_ += ".PP\n" + escaped(text) + "\n"; }

  // An entry of a list.
  void entry(const std::string& roff_of_term, const std::string& text) {
    roff_ += ".TP\n" + roff_of_term + "\n" + escaped(text) + "\n";
  }

  // Lines that are shown as they are typed.
  void begin_code() { roff_ += ".PP\n.nf\n.RS 4\n"; }
  void end_code() { roff_ += ".RE\n.fi\n"; }

  const std::string& roff() const { return roff_; }

 private:
  std::string roff_;
};

std::string bold(const std::string& text) {
  return "\\fB" + escaped(text) + "\\fR";
}

std::string italic(const std::string& text) {
  return "\\fI" + escaped(text) + "\\fR";
}

void write_synopsis(Page& page, const CLI::App& program, const CLI::App& app) {
  auto line = bold(program.get_name());
  if (&app != &program)
    line += " " + bold(app.get_name());
  std::string positional;
  for (const auto& option : described_options(app)) {
    if (option.is_positional)
      positional += " " + italic(in_capitals(option.names.front()));
    else if (option.is_required)
      line += " " + bold(option.names.back()) + " " + italic(option.value) +
              (option.is_repeatable ? " ..." : "");
  }
  if (&app == &program)
    page.line(line + " " + italic("SUBCOMMAND") + " ...");
  else
    page.line(line + " [" + italic("OPTIONS") + "]" + positional);
}

void write_options(Page& page, const CLI::App& app) {
  for (const auto& option : described_options(app)) {
    if (app.get_parent() != nullptr && option.names.back() == "--help")
      continue;  // the page has it once
    std::string term;
    for (const auto& name : option.names)
      term += (term.empty() ? "" : ", ") +
              (option.is_positional ? italic(in_capitals(name)) : bold(name));
    if (!option.is_positional && !option.value.empty())
      term += " " + italic(option.value);
    auto text = option.help;
    if (!option.choices.empty()) {
      std::string choices;
      for (const auto& choice : option.choices)
        choices += (choices.empty() ? "" : ", ") + choice;
      text += (text.empty() ? "" : "; ") + ("one of " + choices);
    }
    if (!option.default_value.empty())
      text += "; by default " + option.default_value;
    page.entry(term, text);
  }
}

// Footers are text in lines. A line that ends with ":" and is followed by indented lines is their
// heading; an indented line with a gap of several spaces is an entry of a list.
class Footer {
 public:
  Footer(Page& page, bool is_of_program) : page_(page), is_of_program_(is_of_program) {}

  void write(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind("  ", 0) == 0) {
        write_indented(line.substr(2));
        continue;
      }
      if (line.empty() || line.back() == ':')
        end_paragraph();
      end_code();
      if (!line.empty() && line.back() == ':')
        heading(line.substr(0, line.size() - 1));
      else
        paragraph_ += (paragraph_.empty() ? "" : " ") + line;
    }
    end_paragraph();
    end_code();
  }

 private:
  void heading(const std::string& name) {
    if (is_of_program_)
      page_.section(name);
    else
      page_.paragraph(name + ":");
  }

  void write_indented(const std::string& line) {
    const auto gap = line.find("  ");
    if (gap != line.npos) {
      page_.entry(bold(line.substr(0, gap)), line.substr(line.find_first_not_of(' ', gap)));
      return;
    }
    if (!in_code_)
      page_.begin_code();
    in_code_ = true;
    page_.line(escaped(line));
  }

  void end_paragraph() {
    if (!paragraph_.empty())
      page_.paragraph(paragraph_);
    paragraph_.clear();
  }

  void end_code() {
    if (in_code_)
      page_.end_code();
    in_code_ = false;
  }

  Page& page_;
  bool is_of_program_;
  bool in_code_ = false;
  std::string paragraph_;
};

}  // namespace

std::string manual(const CLI::App& program) {
  Page page;
  page.title(program.get_name());
  page.section("Name");
  auto description = program.get_description();
  if (!description.empty() && description.back() == '.')
    description.pop_back();
  if (!description.empty())
    description.front() =
        static_cast<char>(std::tolower(static_cast<unsigned char>(description.front())));
  page.line(escaped(program.get_name()) + " \\- " + escaped(description));
  page.section("Synopsis");
  write_synopsis(page, program, program);
  page.section("Options");
  write_options(page, program);
  page.section("Subcommands");
  for (const auto* app : listed_subcommands(program)) {
    page.subsection(app->get_name());
    page.line(escaped(app->get_description()));
    page.line(".PP");
    write_synopsis(page, program, *app);
    write_options(page, *app);
    Footer(page, /*is_of_program=*/false).write(app->get_footer());
  }
  Footer(page, /*is_of_program=*/true).write(program.get_footer());
  return page.roff();
}

}  // namespace aten_recompute::command
