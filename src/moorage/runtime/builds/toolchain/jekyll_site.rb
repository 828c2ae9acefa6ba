# Build a Jekyll site with the plugins and themes that there are: a missing one is installed if that is possible, else it
# is left out, and the log says so. GitHub Pages has some plugins for every site.

require "jekyll"

if ARGV.include?("--version")
  puts Jekyll::VERSION
  exit
end

OF_PAGES = %w[jekyll-default-layout jekyll-gist jekyll-github-metadata jekyll-optional-front-matter jekyll-paginate
              jekyll-readme-index jekyll-relative-links jekyll-titles-from-headings].freeze
TAGS = %w[jekyll-seo-tag jekyll-feed jekyll-include-cache].freeze

def there?(name)
  Gem::Specification.reset
  Gem::Specification.find_all_by_name(name).any?
end

def fetched?(name)
  return false unless name.match?(/\A[\w.-]+\z/)

  options = %w[--no-document --conservative --minimal-deps --quiet]
  system("timeout", "90", RbConfig.ruby, "-S", "gem", "install", *options, name, out: File::NULL, err: File::NULL)
  Gem.clear_paths
  there?(name)
end

# Settings of older sites have symbols, such as `style: :compressed`, which Jekyll 4 refuses.
module Jekyll
  module Utils
    def safe_load_yaml(yaml)
      Psych.safe_load(yaml, permitted_classes: [Date, Time, Symbol], aliases: true)
    end
  end
end

settings = Jekyll.configuration("quiet" => true)
gemfile = File.exist?("Gemfile") ? File.read("Gemfile") : ""
listed = gemfile.scan(/^\s*gem\s*\(?\s*["'](jekyll-[\w-]+|jemoji)["']/).flatten
wanted = Array(settings["plugins"]) + listed.reject { |name| name.start_with?("jekyll-theme") } + TAGS
wanted += OF_PAGES if gemfile.empty? || gemfile.include?("github-pages")
can_fetch = true
plugins = wanted.uniq.select do |name|
  found = there?(name) || (can_fetch && (can_fetch = fetched?(name)))
  puts "warning: the plugin #{name} is not available here, and the site is built without it" unless found || name == "jekyll-remote-theme"
  found
end

theme = settings["theme"] || settings["remote_theme"].to_s.split("@").first.to_s.split("/").last
changes = { "plugins" => plugins, "baseurl" => "", "quiet" => false }
if theme && !there?(theme) && !(can_fetch && fetched?(theme))
  has_layouts = Dir.glob("_layouts/*").any?
  puts "warning: the theme #{theme} is not available here: " \
       "#{has_layouts ? 'the layouts of the repository are used' : 'minima is used in its place'}; " \
       "commit the folders _layouts, _includes and _sass of the theme to have it"
  changes["theme"] = has_layouts ? nil : "minima"
elsif theme
  changes["theme"] = theme
end
Jekyll::Commands::Build.process(changes)
